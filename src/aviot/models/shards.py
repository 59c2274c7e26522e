"""Safetensors on disk: which tensors are where, read from the files' headers alone, and writing them whole."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aviot.files import replacing

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, and why."""


@dataclass(frozen=True)
class Shards:
    """The tensors of a checkpoint folder, by name."""

    shapes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, Path]  # the file of each tensor

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, each once, in name order."""
        return tuple(sorted(set(self.files.values())))

    def of(self, path: Path) -> list[str]:
        """The tensors that one file holds."""
        return [name for name, file in self.files.items() if file == path]


def read_shards(folder: Path) -> Shards:
    """Names and shapes of every tensor; refuses pickles, names missing and broken files."""
    shapes: dict[str, tuple[int, ...]] = {}
    files: dict[str, Path] = {}
    for path in _shard_files(folder):
        if not path.is_file():
            raise CheckpointError(f"{folder}: shard {path.name} is missing, though {INDEX} lists it; fetch it again")
        try:
            with safe_open(path, "pt") as shard:
                for name in shard.keys():  # noqa: SIM118 (a safetensors file is no mapping)
                    shapes[name] = tuple(shard.get_slice(name).get_shape())
                    files[name] = path
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: not a whole safetensors file ({error}); fetch it again") from error
    return Shards(shapes, files)


def _shard_files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        try:
            listed = json.loads((folder / INDEX).read_text())["weight_map"].values()
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{folder / INDEX}: expected a JSON object with weight_map ({error})") from error
        return sorted({_inside(folder, name) for name in listed})
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} holds its weights as pickles ({', '.join(pickles[:3])}), which can run code when opened; "
            "have them converted to safetensors where they come from"
        )
    raise CheckpointError(f"{folder} holds no weights; expected {SINGLE} or {INDEX}")


def _inside(folder: Path, name: object) -> Path:
    """A shard's path, which must not lead out of its folder."""
    if not isinstance(name, str) or Path(name).name != name:
        raise CheckpointError(f"{folder / INDEX} lists {name!r}, which is no file name; a shard lies beside its index")
    return folder / name


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file whole or not at all, with the permissions any other new file would have."""
    with replacing(path) as temporary:
        try:
            whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(whole, temporary, metadata=dict(metadata))
        except SafetensorError as error:  # its writer reports a full or unwritable disk in no other way
            raise OSError(f"{path} could not be written ({error}); free some space or name another file") from error
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
