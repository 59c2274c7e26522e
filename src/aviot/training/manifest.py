"""The manifest of a checkpoint: what its files are called, how long they are, and their SHA-256; written last."""

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

FILE = "manifest.json"
FORMAT = 1
LARGEST = 2**24  # bytes of a manifest that is read; one of 1,000 processes has 2**19
THREADS = 8  # files hashed at once: hashing leaves the interpreter's lock alone, and a disk is no faster with more
_RANK = re.compile(r"(?:rank_?|rng_state_|__)(\d+)")  # in the names of files that each process writes for itself


class ManifestError(ValueError):
    """A manifest that cannot be trusted, and why."""


class FileRecord(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class RunRecord:
    """The run that a checkpoint is of: its id, and what `run.json` had recorded of its starts by then."""

    id: str = ""
    starts: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's step and run, the processes that wrote it, and its files by their relative paths."""

    step: int
    processes: int
    run: RunRecord
    files: Mapping[str, FileRecord]

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, with a digest of itself."""
        values = {
            "format": FORMAT,
            "step": self.step,
            "processes": self.processes,
            "run": asdict(self.run),
            "files": {name: record._asdict() for name, record in sorted(self.files.items())},
        }
        return json.dumps(values | {"sha256": digest(values)}, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Read a manifest back; ManifestError if it was cut or changed."""
        try:
            values = json.loads(data)
            told = values.pop("sha256")
            if digest(values) != told:
                _refuse("it was changed")
            if values["format"] != FORMAT:
                _refuse(f"its format is {values['format']!r} and this version reads {FORMAT}; use a newer one")
            files = {_checked_name(name): FileRecord(**record) for name, record in values["files"].items()}
            found = cls(int(values["step"]), int(values["processes"]), RunRecord(**values["run"]), files)
            return found if found.processes > 0 else _refuse("it was changed")
        except ManifestError:
            raise
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise ManifestError("it was cut or changed") from error


def read_manifest(folder: Path) -> Manifest:
    """Read a checkpoint's manifest; ManifestError if there is none to be trusted."""
    return Manifest.from_bytes(manifest_bytes(folder))


def manifest_bytes(folder: Path) -> bytes:
    """Return a manifest as it is on disk."""
    path = folder / FILE
    try:
        if path.is_symlink() or not path.is_file():
            raise ManifestError("it is not a regular file")
        if path.stat().st_size > LARGEST:
            raise ManifestError(f"it is larger than {LARGEST:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ManifestError(f"it cannot be read ({error.strerror})") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a checkpoint's manifest, after everything else in it."""
    write_durably(folder / FILE, manifest.to_bytes())


def hash_own_files(folder: Path, rank: int, processes: int) -> list[tuple[str, FileRecord]]:
    """Hash the files below a folder that a process wrote: those with its rank in their names, and the first the others.

    Each file is hashed by one process, whichever wrote it, and right after it was written: out of memory, not off disk.
    """
    names = [name for name in all_files(folder) if _owner(name) % processes == rank]
    return hash_files(folder, names)


def hash_files(folder: Path, names: Iterable[str]) -> list[tuple[str, FileRecord]]:
    """Hash files in threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda name: (name, _hash(folder / name)), names))


def all_files(folder: Path) -> list[str]:
    """Return the relative paths of everything below a folder that is not a directory; links are not followed."""
    found = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        found += [Path(parent, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(found)


def digest(values: Any) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _hash(path: Path) -> FileRecord:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(file.tell(), found)


def _refuse(why: str) -> NoReturn:
    raise ManifestError(why)


def _owner(name: str) -> int:
    found = _RANK.search(PurePosixPath(name).name)
    return int(found.group(1)) if found else 0


def _checked_name(name: str) -> str:
    """Return the path of a listed file, which has to lie in the checkpoint."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name in (".", FILE) or "\0" in name:
        raise ManifestError("it was changed: it lists files elsewhere")
    return name
