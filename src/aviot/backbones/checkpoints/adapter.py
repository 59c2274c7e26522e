"""Adapters: folders with only what was trained for a base model, and a file that names and identifies that base.

`aviot_adapter.json` has the base's path, family and digest of weights, and the settings of what was trained;
`aviot.safetensors` has AVIOT's parts, and `adapter/`, in peft's format, low-rank adapters of the decoder if there are
any.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aviot.backbones.checkpoints.folder import CheckpointError, read_json, shown
from aviot.backbones.checkpoints.lora import LoraSettings
from aviot.backbones.checkpoints.shards import read_shards
from aviot.config import CompressorConfig
from aviot.request import ADAPTER_FILE
from aviot.utils.files import write_durably
from aviot.utils.values import from_mapping, require_finite
from aviot.video.sampling import Sampling

PARTS_FILE = "aviot.safetensors"
FORMAT = 1
THREADS = 8  # hashing releases the interpreter's lock, and more threads do not make a disk faster
CHUNK = 2**22  # bytes that are hashed at a time
SHOWN_DIGITS = 12  # of a digest, in messages


@dataclass(frozen=True)
class BaseModel:
    """A model that something was trained for: its folder or name, its family, and the digest of its weights."""

    path: str
    family: str
    weights_sha256: str

    def __post_init__(self) -> None:
        if not all(isinstance(value, str) and value for value in asdict(self).values()):
            raise ValueError(f"base must have path, family and weights_sha256 as text, got {asdict(self)}")


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The settings of an adapter. `sampling` is that of the videos that it was trained on."""

    base: BaseModel
    compressor: CompressorConfig
    sampling: Sampling
    transport_loss_weight: float = 1.0
    lora: LoraSettings | None = None

    def __post_init__(self) -> None:
        require_finite(self, "transport_loss_weight")

    def write(self, folder: Path) -> None:
        """Write the file that makes a folder an adapter."""
        values = {"format": FORMAT, **asdict(self), "compressor": self.compressor.to_dict()}
        write_durably(folder / ADAPTER_FILE, json.dumps(values, indent=2).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> "Adapter":
        """Read and check the file back."""
        path = folder / ADAPTER_FILE
        values = read_json(path)
        version = values.pop("format", None)
        if version != FORMAT:
            raise CheckpointError(
                f"{path}: its format is {shown(str(version))} and this version of aviot reads {FORMAT}; use the "
                "version that wrote it"
            )
        groups: Mapping[str, type] = {"base": BaseModel, "compressor": CompressorConfig, "sampling": Sampling}
        try:
            for name, group in groups.items():
                values[name] = from_mapping(group, values.get(name), name)
            if values.get("lora") is not None:
                values["lora"] = from_mapping(LoraSettings, values["lora"], "lora")
            return from_mapping(cls, values, "the adapter")
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: {error}") from error

    def check_base(self, folder: Path, base: Path, family: str) -> None:
        """Refuse a base of another family, or with other weights, than the adapter in `folder` was trained for."""
        weights = _short(self.base.weights_sha256)
        wanted = f"the adapter in {folder} was trained for the family {self.base.family} and the weights {weights}"
        fix = f"name that model as the base (it was {shown(self.base.path)}), or train an adapter for this one"
        if family != self.base.family:
            raise CheckpointError(f"{wanted}, and {base} is of the family {family}; {fix}")
        found = weights_digest(base)
        if found != self.base.weights_sha256:
            raise CheckpointError(f"{wanted}, and the weights in {base} are {_short(found)}; {fix}")


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter."""
    return (folder / ADAPTER_FILE).is_file()


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a model's weights: of each tensor's name, type, shape and bytes, in the names' order.

    It reads every byte once. How tensors are distributed over files, and other files, do not count.
    """
    tensors = [tensor for path in read_shards(folder).paths for tensor in _stored(path)]
    with ThreadPoolExecutor(THREADS) as pool:
        return hashlib.sha256("".join(sorted(pool.map(_line, tensors))).encode()).hexdigest()


def _short(digest: str) -> str:
    return f"{digest[:SHOWN_DIGITS]}…"


def _stored(path: Path) -> Iterator[tuple[Path, str, Any, int]]:
    """Yield the file, name, header entry and offset of each tensor in a safetensors file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    for name, entry in header.items():
        if name != "__metadata__":
            yield path, name, entry, 8 + length


def _line(tensor: tuple[Path, str, Any, int]) -> str:
    path, name, entry, start = tensor
    first, end = entry["data_offsets"]
    digest, left = hashlib.sha256(), end - first
    with path.open("rb") as file:
        file.seek(start + first)
        while left and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return json.dumps([name, entry["dtype"], entry["shape"], digest.hexdigest()]) + "\n"
