"""Grounding in time: spans, times read from text, and the span that an answer rests on."""
