"""Temporal grounding: files of its benchmarks, and the overlap of the spans in replies with the annotated ones."""
