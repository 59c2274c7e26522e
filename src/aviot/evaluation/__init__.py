"""Evaluation on people's own items: questions about videos asked, scored, and written down to be repeated."""
