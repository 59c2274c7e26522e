"""The paper's experiments in the small model's own world, measured again by one command."""
