"""What `aviot bench` measures: time, memory and bandwidth of each part, after a check that the answers are right."""
