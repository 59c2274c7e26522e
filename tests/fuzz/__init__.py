"""Seeded fuzzers of everything that reads a stranger's files or requests: `python tests/fuzz --help`."""
