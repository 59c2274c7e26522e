"""Helpers that make tampered checkpoint folders."""

import json
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

from aviot.bundled import embedded_model
from aviot.models import AviotForConditionalGeneration, AviotProcessor

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
CPU_SECONDS = 2.0  # limit for a refusal


def copied(folder, target):
    """Copy a checkpoint without the files that no loader reads."""
    return shutil.copytree(folder, target, ignore=shutil.ignore_patterns("expected.*", "training.jsonl", "README.md"))


def golden(tmp_path):
    """Copy a published checkpoint."""
    return copied(GOLDEN, tmp_path / "published")


def small(tmp_path):
    """Copy a checkpoint of our own layout."""
    return copied(embedded_model(), tmp_path / "ours")


def put(path, value, *keys):
    """Set a value below some keys of a JSON file."""
    document = json.loads(path.read_text()) if path.exists() else {}
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(document))


def load(folder):
    """Load everything that is needed to answer."""
    return AviotProcessor.from_pretrained(folder), AviotForConditionalGeneration.from_pretrained(folder)


@contextmanager
def quickly():
    """Fail if the block takes too long for a refusal."""
    start = time.process_time()
    yield
    assert time.process_time() - start < CPU_SECONDS
