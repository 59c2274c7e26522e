"""A home for the harness's data; to be imported before its tasks, which look for their videos below it."""

import os
import tempfile
from pathlib import Path

HOME = Path(tempfile.mkdtemp())
os.environ["HF_HOME"] = str(HOME)
