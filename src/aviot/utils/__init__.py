"""Low-level helpers: value checks, atomic files, journals, terminal-safe text, ranks and devices."""
