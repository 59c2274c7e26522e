"""Tiny models of every family, which the tests of families share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
