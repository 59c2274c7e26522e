"""Checkpoints of any family, read without running their code or believing their sizes."""
