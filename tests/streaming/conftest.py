"""Tiny models of every family and tiny clips, which other folders' tests share."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("families", "video")]
