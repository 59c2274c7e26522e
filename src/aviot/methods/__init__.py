"""Methods that turn encoded video into fewer tokens, and their registry."""
