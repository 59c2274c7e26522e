"""Where a checkpoint is: a folder on this machine, or, when somebody asks for that, the Hugging Face hub."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from aviot.backbones.checkpoints.errors import CheckpointError, reason_of, shown

ORIGIN = ("revision", "local_files_only", "download")
"""Options of `from_pretrained` that say where a checkpoint comes from."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FETCHED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")


def resolve_folder(
    name: Any, *, revision: str | None = None, local_files_only: bool = False, download: bool = False
) -> Path:
    """Return a checkpoint's folder: the one named, or what the hub has under that name if `download` asks for it.

    Without `download` nothing is sent over the network; `local_files_only` looks in the hub's cache on this machine. A
    name below a folder that exists here is taken as a mistyped path, and never sent either.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    missing = f"{shown(str(name))}: no such folder"
    if not _HUB_ID.fullmatch(str(name)):
        raise CheckpointError(f"{missing}; expected a checkpoint with config.json and safetensors")
    if folder.parent.is_dir():
        raise CheckpointError(
            f"{missing}, though {folder.parent} is a folder here; correct the path (it is not looked for on the hub)"
        )
    if not (download or local_files_only):
        raise CheckpointError(
            f"{missing} here, and nothing is fetched unless asked for; correct the path, or pass download=True to "
            "from_pretrained to fetch that name from the Hugging Face hub (local_files_only=True: from its cache)"
        )
    try:
        fetched = snapshot_download(
            str(name), revision=revision, local_files_only=local_files_only, allow_patterns=list(_FETCHED)
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{missing} here, and the hub did not give it ({reason_of(error)})") from error
    return Path(fetched)
