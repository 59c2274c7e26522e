"""The paper's experiments with the bundled demo model, repeated by one command."""
