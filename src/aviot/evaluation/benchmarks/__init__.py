"""The ten benchmarks of the paper: their records, and their prompts as lmms-eval words them."""
