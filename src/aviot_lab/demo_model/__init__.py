"""The small model that comes with the package: its tokenizer, its shape, and how it is trained in the video world."""
