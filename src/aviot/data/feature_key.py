"""Under which name the features of a video are kept: a hash of everything that they depend on."""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

VERSION = 1
"""Raised whenever the same video would give other features, so that older ones are not used."""


@dataclass(frozen=True)
class FeatureKeys:
    """What the features of every video depend on, beside the video: sampling, frame size, encoder and type.

    `encoder` is a `fingerprint` of its weights, `dtype` the features' type as text.
    """

    fps: float
    max_frames: int
    image_size: int
    encoder: str
    dtype: str

    def key(self, video: Path) -> str | None:
        """The name for a video's features; None for what is neither a file nor a folder, and so no video.

        All bytes of the video count, and neither its name nor its date: copies share their features, and a file that
        was mended gets new ones. Hashing takes a hundredth of decoding.
        """
        digest = content_digest(video)
        if digest is None:
            return None
        parts = json.dumps([VERSION, digest, asdict(self)], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()


def content_digest(video: Path) -> str | None:
    """SHA-256 of a file, or of the names and contents of a folder's files; None for anything else."""
    try:
        mode = video.stat().st_mode
        if stat.S_ISREG(mode):
            return _file_digest(video)
        if not stat.S_ISDIR(mode):
            return None
        files = sorted(entry.name for entry in os.scandir(video) if entry.is_file())
        parts = [(name, _file_digest(video / name)) for name in files]
    except (OSError, ValueError):
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of named tensors, the same on every device."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
