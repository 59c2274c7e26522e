"""Training: the paper's recipe on one process or many, from a configuration file to checkpoints."""
