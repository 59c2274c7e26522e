"""Evaluation on questions about videos: ask, score, and record everything needed to repeat the run."""
