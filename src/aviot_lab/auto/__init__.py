"""The automatic budget of a small model: calibrated on one split of the world, measured on another."""
