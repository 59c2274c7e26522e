"""The paper's ten benchmarks as one suite, with the paper's own scores for comparison."""
