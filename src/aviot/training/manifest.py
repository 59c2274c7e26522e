"""Integrity records: a checkpoint's manifest of its files, and a run's ledger of its checkpoints' manifests.

A manifest lists each file's name, size and SHA-256, and is written after all other files of the checkpoint. The ledger,
beside the checkpoints, has the SHA-256 of each manifest.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn

from aviot.utils.files import write_durably

MANIFEST_FILE = "manifest.json"
LEDGER_FILE = "checkpoints.json"
FORMAT = 1
MAX_MANIFEST_BYTES = 2**24  # for comparison, the manifest of 1,000 processes has 2**19
THREADS = 8  # hashing releases the interpreter's lock, and more threads do not make a disk faster
_RANK = re.compile(r"(?:rank_?|rng_state_|__)(\d+)")  # in the names of files that each rank writes

Ledger = dict[int, str]
"""SHA-256 of each checkpoint's manifest, by step."""


class CheckpointManifestError(ValueError):
    """A manifest that cannot be read or trusted; the message is the reason."""


class FileDigest(NamedTuple):
    """Size and SHA-256 of a file as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class RunReference:
    """The run that a checkpoint belongs to: its id, the number of its starts so far, and the SHA-256 of their list."""

    id: str = ""
    starts: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's step and run, the number of processes that wrote it, and its files by relative path."""

    step: int
    processes: int
    run: RunReference
    files: Mapping[str, FileDigest]

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, including a digest of its own values."""
        values = {
            "format": FORMAT,
            "step": self.step,
            "processes": self.processes,
            "run": asdict(self.run),
            "files": {name: file._asdict() for name, file in sorted(self.files.items())},
        }
        return json.dumps(values | {"sha256": digest(values)}, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Read a manifest back; CheckpointManifestError if it was truncated or changed."""
        try:
            values = json.loads(data)
            expected = values.pop("sha256")
            if digest(values) != expected:
                _reject("it was changed")
            if values["format"] != FORMAT:
                _reject(f"its format is {values['format']!r} and this version reads {FORMAT}; use a newer version")
            files = {_checked_name(name): FileDigest(**file) for name, file in values["files"].items()}
            manifest = cls(int(values["step"]), int(values["processes"]), RunReference(**values["run"]), files)
            return manifest if manifest.processes > 0 else _reject("it was changed")
        except CheckpointManifestError:
            raise
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointManifestError("it was truncated or changed") from error


def read_manifest(checkpoint: Path) -> Manifest:
    """Read a checkpoint's manifest; CheckpointManifestError if it is missing or cannot be trusted."""
    return Manifest.from_bytes(_manifest_bytes(checkpoint))


def write_manifest(checkpoint: Path, manifest: Manifest) -> None:
    """Write a checkpoint's manifest, after all its other files."""
    write_durably(checkpoint / MANIFEST_FILE, manifest.to_bytes())


def manifest_digest(checkpoint: Path) -> str | None:
    """Return the SHA-256 of a checkpoint's manifest; None if it cannot be read."""
    try:
        return hashlib.sha256(_manifest_bytes(checkpoint)).hexdigest()
    except CheckpointManifestError:
        return None


def read_ledger(run: Path) -> Ledger:
    """Read a run's ledger; an empty one if there is no file, ValueError if it cannot be read."""
    path = run / LEDGER_FILE
    if not path.exists():
        return {}
    try:
        is_readable = path.is_file() and path.stat().st_size <= MAX_MANIFEST_BYTES
        values = json.loads(path.read_text(encoding="utf-8") if is_readable else "")
        return {int(step): str(sha256) for step, sha256 in values.items()}
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: it was truncated or changed") from error


def write_ledger(run: Path, ledger: Mapping[int, str]) -> None:
    """Write a run's ledger."""
    values = {str(step): ledger[step] for step in sorted(ledger)}
    write_durably(run / LEDGER_FILE, json.dumps(values, indent=1).encode())


def hash_own_files(folder: Path, rank: int, processes: int) -> list[tuple[str, FileDigest]]:
    """Hash this rank's part of the files below a folder: those with its rank in their names; rank 0 also the rest.

    So each rank hashes the files that it has just written, which are still in memory.
    """
    names = [name for name in all_files(folder) if _writer_rank(name) % processes == rank]
    return hash_files(folder, names)


def hash_files(folder: Path, names: Iterable[str]) -> list[tuple[str, FileDigest]]:
    """Hash files in threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda name: (name, _hash(folder / name)), names))


def all_files(folder: Path) -> list[str]:
    """Return the relative paths of everything below a folder that is not a directory; links are not followed."""
    names = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        names += [Path(parent, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(names)


def digest(values: Any) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _manifest_bytes(checkpoint: Path) -> bytes:
    path = checkpoint / MANIFEST_FILE
    try:
        if path.is_symlink() or not path.is_file():
            raise CheckpointManifestError("it is not a regular file")
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise CheckpointManifestError(f"it is larger than {MAX_MANIFEST_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise CheckpointManifestError(f"it cannot be read ({error.strerror})") from error


def _hash(path: Path) -> FileDigest:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return FileDigest(file.tell(), sha256)


def _reject(reason: str) -> NoReturn:
    raise CheckpointManifestError(reason)


def _writer_rank(name: str) -> int:
    """Return the rank in a file's name; 0 if it has none."""
    match = _RANK.search(PurePosixPath(name).name)
    return int(match.group(1)) if match else 0


def _checked_name(name: str) -> str:
    """Return a listed path after checking that it is inside the checkpoint."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name in (".", MANIFEST_FILE) or "\0" in name:
        raise CheckpointManifestError("it was changed: it lists files elsewhere")
    return name
