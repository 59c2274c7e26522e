"""Which checkpoints a run has written: the digests of their manifests, beside them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from aviot.files import write_durably
from aviot.training.manifest import LARGEST, ManifestError, manifest_bytes

FILE = "checkpoints.json"

Ledger = dict[int, str]
"""SHA-256 of a checkpoint's manifest, by its step."""


def read_ledger(run: Path) -> Ledger:
    """Read what a run has written; nothing where there is no record, ValueError where it cannot be read."""
    path = run / FILE
    if not path.exists():
        return {}
    try:
        is_read = path.is_file() and path.stat().st_size <= LARGEST
        read = json.loads(path.read_text(encoding="utf-8") if is_read else "")
        return {int(step): str(found) for step, found in read.items()}
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: it was cut or changed") from error


def write_ledger(run: Path, ledger: Mapping[int, str]) -> None:
    """Record what a run has written."""
    write_durably(run / FILE, json.dumps({str(step): ledger[step] for step in sorted(ledger)}, indent=1).encode())


def manifest_digest(checkpoint: Path) -> str | None:
    """Return the digest of a checkpoint's manifest; None if it cannot be read."""
    try:
        return hashlib.sha256(manifest_bytes(checkpoint)).hexdigest()
    except ManifestError:
        return None
