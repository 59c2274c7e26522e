"""Safetensors files: names and shapes of tensors read from the headers alone, and atomic writes."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aviot.backbones.checkpoints.folder import CheckpointError as CheckpointError  # other packages import it from here
from aviot.backbones.checkpoints.folder import quoted, read_json, reason_of, shown
from aviot.utils.files import atomic_write

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LARGEST_INDEX = 16 * 2**20  # bytes
LARGEST_HEADER = 16 * 2**20  # bytes; a 7B model's four shards have some 100,000 together
MOST_SHARDS = 2048
MOST_TENSORS = 100_000
_LONGEST_NAME = 200  # letters of a file's name; file systems take 255 bytes
_LENGTH = 8  # bytes at the start of a safetensors file: the length of its header
_FLOATING = ("F64", "F32", "F16", "BF16")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Shards that transformers would take instead of the files that are checked here.
_DISTRIBUTED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")


@dataclass(frozen=True)
class Shards:
    """The tensors of a checkpoint folder, by name."""

    shapes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, Path]  # the file of each tensor
    dtypes: Mapping[str, str]  # in safetensors' names

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, each once, in name order."""
        return tuple(sorted(set(self.files.values())))

    def names_in(self, path: Path) -> list[str]:
        """Return the names of the tensors in one file."""
        return [name for name, file in self.files.items() if file == path]


def has_weights(folder: Path) -> bool:
    """Return whether a folder holds weights under the usual names; a processor can be stored without."""
    return (folder / INDEX).is_file() or (folder / SINGLE).is_file()


def read_shards(folder: Path) -> Shards:
    """Return name, shape and type of every tensor; refuse pickles and, by their names, missing and broken files."""
    shapes: dict[str, tuple[int, ...]] = {}
    files: dict[str, Path] = {}
    dtypes: dict[str, str] = {}
    for path in _shard_files(folder):
        if not path.is_file():
            raise CheckpointError(
                f"{folder}: shard {shown(path.name)} is missing, though {INDEX} lists it; fetch it again"
            )
        try:
            _check_header(path)
            with safe_open(path, "pt") as shard:
                names = list(shard.keys())
                if len(shapes) + len(names) > MOST_TENSORS:
                    raise CheckpointError(f"{folder} holds more than {MOST_TENSORS:,} tensors, which no model here has")
                for name in names:
                    stored = shard.get_slice(name)
                    shapes[name], dtypes[name] = tuple(stored.get_shape()), str(stored.get_dtype())
                    files[name] = path
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{folder / shown(path.name)}: not a whole safetensors file ({reason_of(error)}); fetch it again"
            ) from error
    return Shards(shapes, files, dtypes)


def check_floating(shards: Shards, names: Iterable[str]) -> None:
    """Refuse weights that are not stored in a common floating-point type."""
    for name in names:
        if shards.dtypes[name] not in _FLOATING:
            raise CheckpointError(
                f"{shards.files[name]}: {shown(name)} is stored as {shown(shards.dtypes[name])}; expected one of "
                f"{', '.join(_FLOATING)}"
            )


def _check_header(path: Path) -> None:
    """Refuse a header that is larger than that of any supported model, before it is read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
    if length > LARGEST_HEADER:
        raise CheckpointError(
            f"{path}: not a whole safetensors file (its header claims {length:,} bytes, at most {LARGEST_HEADER:,} are "
            "read); fetch it again"
        )


def _shard_files(folder: Path) -> list[Path]:
    for path in folder.glob("shard-*.safetensors"):
        if _DISTRIBUTED.fullmatch(path.name):
            raise CheckpointError(
                f"{folder} holds {path.name}, a part of a distributed checkpoint, which is not implemented; save the "
                "model as a whole"
            )
    if (folder / INDEX).is_file():
        if (folder / SINGLE).is_file():
            raise CheckpointError(f"{folder} holds both {SINGLE} and {INDEX}; remove the one that is out of date")
        listed = read_json(folder / INDEX, LARGEST_INDEX).get("weight_map")
        if not isinstance(listed, dict):
            raise CheckpointError(f"{folder / INDEX}: expected a JSON object with weight_map, got {quoted(listed)}")
        names = {_file_name(folder, name) for name in listed.values()}
        if len(names) > MOST_SHARDS:
            raise CheckpointError(f"{folder / INDEX} lists {len(names):,} files, more than the {MOST_SHARDS:,} allowed")
        return sorted(folder / name for name in names)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} holds its weights as pickles ({', '.join(map(shown, pickles[:3]))}), which can run code when "
            "opened; have them converted to safetensors where they come from"
        )
    raise CheckpointError(f"{folder} holds no weights; expected {SINGLE} or {INDEX}")


def _file_name(folder: Path, name: object) -> str:
    """Return a shard's file name; refuse one that leads out of the folder."""
    plain = isinstance(name, str) and name.isprintable() and len(name) <= _LONGEST_NAME and Path(name).name == name
    if not isinstance(name, str) or not plain or not name.endswith(".safetensors"):
        raise CheckpointError(
            f"{folder / INDEX} lists {quoted(name)}, which is not the file name of a shard; expected the name of a "
            ".safetensors file beside the index"
        )
    return name


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically, with the permissions of other new files."""
    with atomic_write(path) as temporary:
        try:
            whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(whole, temporary, metadata=dict(metadata))
        except SafetensorError as error:  # the only way its writer reports a full or unwritable disk
            raise OSError(f"{path} could not be written ({error}); free some space or name another file") from error
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
