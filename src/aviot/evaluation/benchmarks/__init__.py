"""The ten benchmarks of the paper: their records, and how their harness words them."""
