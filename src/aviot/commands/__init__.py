"""The commands of `aviot`, one module per verb, with the options and terminal output that they share."""
