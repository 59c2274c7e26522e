"""Parsing of free-text replies: which options a reply mentions, and whether it asserts or rules them out."""
