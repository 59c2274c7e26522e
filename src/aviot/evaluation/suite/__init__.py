"""`aviot evaluate --suite paper`: all ten benchmarks beside the paper's own figures."""
