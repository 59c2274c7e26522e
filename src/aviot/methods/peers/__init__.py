"""Methods that others have published, one per file, implemented from their specifications."""
