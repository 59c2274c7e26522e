"""Backbones: one package per family of Hugging Face video models. With `engine`, all that knows transformers."""
