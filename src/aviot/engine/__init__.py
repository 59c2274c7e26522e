"""Engines: prompts with visual tokens in, text out."""
