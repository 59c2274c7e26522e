"""Benchmarks of `aviot bench`: time, memory and bandwidth of each part, after a check of the results."""
