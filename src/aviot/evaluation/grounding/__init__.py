"""Temporal grounding: files of its benchmarks, and the overlap of the spans that replies name with the annotated ones."""
