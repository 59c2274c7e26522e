"""The bundled demo model: its tokenizer, its architecture, and its training in the procedural world."""
