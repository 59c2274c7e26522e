"""Sources of live frames: files at their own speed, growing files, folders, pipes, cameras and network streams."""
