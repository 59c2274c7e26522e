"""A checkpoint's folder: found on this machine or on the Hugging Face hub, its JSON files read within limits."""

import json
import re
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

ORIGIN = ("revision", "local_files_only", "download")
"""Options of `from_pretrained` that say where a checkpoint comes from."""

LARGEST_CONFIG = 4 * 2**20  # bytes; the largest published config has some tens of thousands
LONGEST_NAME = 200  # characters of a name that an error message repeats
LONGEST_REASON = 400  # characters of another library's message
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_EXPECTED = "expected a checkpoint's config"


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, and why."""


class NotCachedError(CheckpointError):
    """A name on the hub that is neither a folder nor in the hub's cache on this machine, and was not to be fetched."""


def resolve_folder(
    name: Any, *, revision: str | None = None, local_files_only: bool = False, download: bool = False
) -> Path:
    """Return a checkpoint's folder: the one named, or the snapshot of that name in the hub's cache on this machine.

    Only `download` sends anything over a network; it fetches configurations, tokenizers and safetensors of one
    revision, and no code; `local_files_only` forbids that again. A name below an existing folder is taken as a
    mistyped path and is never sent either.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    missing = f"{shown(str(name))}: no such folder"
    if not is_hub_name(name):
        raise CheckpointError(f"{missing}; expected a checkpoint with config.json and safetensors")
    if folder.parent.is_dir():
        raise CheckpointError(
            f"{missing}, though {folder.parent} is a folder here; correct the path (it is not looked for on the hub)"
        )
    if not (download or local_files_only):
        return _cached(str(name), revision, missing)
    try:
        snapshot = snapshot_download(
            str(name), revision=revision, local_files_only=local_files_only, allow_patterns=list(_DOWNLOADED)
        )
    except Exception as error:  # the hub's own, or its HTTP client's
        raise CheckpointError(f"{missing} here, and {_refusal(str(name), revision, error)}") from error
    return Path(snapshot)


def _cached(name: str, revision: str | None, missing: str) -> Path:
    """Return the snapshot of a name in the hub's cache on this machine; nothing is sent over a network."""
    config = try_to_load_from_cache(name, "config.json", revision=revision)
    if isinstance(config, str):
        return Path(config).parent
    wanted = "" if revision is None else f" at revision {shown(revision)}"
    raise NotCachedError(
        f"{missing} here, nor is that name{wanted} in the hub's cache on this machine; correct the path, or pass "
        "download=True to fetch it from the Hugging Face hub"
    )


def is_hub_name(name: object) -> bool:
    """Return whether a name could be one on the hub: an owner and a model."""
    return bool(_HUB_ID.fullmatch(str(name)))


def _refusal(name: str, revision: str | None, error: Exception) -> str:
    """Return why the hub did not give a model, and what to do."""
    if isinstance(error, GatedRepoError):
        return (
            f"the hub gives {name} only to accounts that accepted its terms; accept them on the model's page, log in "
            "with `hf auth login`, and try again"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{name} has no revision {shown(revision)} on the hub; correct it, or leave it out"
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"the hub has no model {name} that this account may see; correct the name, or log in with "
            "`hf auth login` if it is private"
        )
    if is_offline_mode():
        return "HF_HUB_OFFLINE forbids to fetch it; unset that variable, or copy the model to a folder here"
    return f"the hub did not give it ({reason_of(error)}); try again, or copy the model to a folder here"


def read_json(path: Path, largest: int = LARGEST_CONFIG) -> dict[str, Any]:
    """Return the JSON object that one of a checkpoint's files holds.

    Raises CheckpointError, naming the file, for anything else, and for a file that `check_file` refuses.
    """
    check_file(path, largest)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the latter from thousands of nested brackets
        raise CheckpointError(f"{path}: not JSON ({reason_of(error)})") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object, got {type(values).__name__}")
    return values


def check_file(path: Path, largest: int) -> None:
    """Refuse a file that is missing, larger than `largest` bytes, or not a regular file of the checkpoint's folder."""
    if not path.is_file():
        found = "not a regular file" if path.is_symlink() or path.exists() else "no such file"
        raise CheckpointError(f"{path}: {found}; {_EXPECTED}")
    if path.is_symlink() and not _stays_inside(path):
        raise CheckpointError(
            f"{path} is a link that leads out of the checkpoint's folder; copy the file it points to into the folder"
        )
    if (size := path.stat().st_size) > largest:
        raise CheckpointError(f"{path} has {size:,} bytes, more than the {largest:,} that such a file can need")


def _stays_inside(path: Path) -> bool:
    """Return whether a link ends in its own folder, or among the hub cache's blobs, which its snapshots link to."""
    folder = path.parent.resolve()
    allowed = [folder]
    while folder != folder.parent:
        if folder.parent.name == "snapshots":
            allowed.append(folder.parent.parent / "blobs")
        folder = folder.parent
    return any(path.resolve().is_relative_to(each) for each in allowed)


def shown(value: object) -> str:
    """Return a name for an error message: unchanged if printable, else its repr (no terminal codes); cut if long."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def quoted(value: object) -> str:
    """Return a value's repr, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def reason_of(error: BaseException) -> str:
    """Return another library's message on one line, printable, and cut to a readable length."""
    text = " ".join(str(error).split())
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"
