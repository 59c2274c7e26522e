"""Low-level helpers: checked values, atomic files, journals, terminal-safe text, machine facts."""
