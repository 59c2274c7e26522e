"""Reading of untrusted checkpoints: code is never run, and sizes are checked before use."""
