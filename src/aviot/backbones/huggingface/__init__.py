"""The parts that families of transformers' own models share: processing, prompts, positions and the backbone."""
