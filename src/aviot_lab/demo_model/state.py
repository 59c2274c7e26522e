"""A training run on disk: weights, optimizer moments and the step, in files of at most 15 MiB."""

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from aviot.backbones.checkpoints.shards import write_tensors
from aviot.config import CompressorConfig
from aviot.utils.files import sync, write_durably

logger = logging.getLogger(__name__)

FILE_BYTES = 15 * 2**20
STATE = "state.json"
WEIGHT = "weight"  # prefix of weights; those of moments are the optimizers' names


def save_state(
    folder: Path,
    module: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    step: int,
    compressor: CompressorConfig | None = None,
) -> None:
    """Write everything that a later piece of the run needs. Moments are rounded to bfloat16, weights are not.

    The compressor's constants are part of it, since training moves some. File names have the step's number. `STATE` is
    written last and lists them; until then the old state is valid.
    """
    names: dict[Tensor, str] = {weight: name for name, weight in module.named_parameters()}
    tensors = {f"{WEIGHT}.{name}": weight.detach() for weight, name in names.items()}
    steps: dict[str, int] = {}
    for weight, moments in (item for optimizer in optimizers for item in optimizer.state.items()):
        for moment, value in moments.items():
            if moment == "step":
                steps[names[weight]] = int(value)
            else:
                tensors[f"{moment}.{names[weight]}"] = value.to(torch.bfloat16)
    folder.mkdir(parents=True, exist_ok=True)
    shards = _shards(tensors)
    files = [f"state-{step}-{number}.safetensors" for number in range(len(shards))]
    for file, shard in zip(files, shards, strict=True):
        write_tensors(folder / file, {name: tensor.cpu() for name, tensor in shard.items()}, {})
        sync(folder / file)
    digests = {file: _digest(folder / file) for file in files}
    state: dict[str, Any] = {"step": step, "files": files, "updates": steps, "sha256": digests}
    if compressor is not None:
        state["compressor"] = compressor.to_dict()
    write_durably(folder / STATE, json.dumps(state).encode())
    for old in folder.glob("state-*.safetensors"):
        if old.name not in files:
            old.unlink()


def load_state(folder: Path, module: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """Load a run's weights and moments; return the number of finished steps, 0 without a run."""
    if not (folder / STATE).is_file():
        return 0
    with _reading(folder), torch.no_grad():
        state, tensors = _read(folder)
        moments: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, tensor in tensors.items():
            kind, _, name = key.partition(".")
            moments[name][kind] = tensor
        names = {weight: name for name, weight in module.named_parameters()}
        for weight, name in names.items():
            weight.copy_(moments[name].pop(WEIGHT))
        for optimizer in optimizers:
            for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
                if saved := moments[names[weight]]:
                    optimizer.state[weight] = {kind: moment.to(weight) for kind, moment in saved.items()}
                if names[weight] in state["updates"]:
                    done = state["updates"][names[weight]]
                    optimizer.state[weight]["step"] = torch.tensor(float(done), device=weight.device)
        return state["step"]


def load_compressor(folder: Path) -> CompressorConfig | None:
    """Return the compressor's constants of a run; None without a run, or in one of an earlier version."""
    if not (folder / STATE).is_file():
        return None
    with _reading(folder):
        values = json.loads((folder / STATE).read_text(encoding="utf-8")).get("compressor")
        return None if values is None else CompressorConfig.from_dict(values)


def load_weights(folder: Path, module: nn.Module, below: str) -> int:
    """Load a run's weights whose names begin with `below` into a module; return the number of finished steps."""
    if not (folder / STATE).is_file():
        raise ValueError(f"{folder} has no {STATE}; name the folder of a run of aviot_lab.demo_model.train")
    with _reading(folder), torch.no_grad():
        state, tensors = _read(folder)
        for name, weight in module.named_parameters():
            weight.copy_(tensors[f"{WEIGHT}.{below}{name}"])
        return state["step"]


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn errors about a run's files into a ValueError that names the run."""
    try:
        yield
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"the run in {folder} cannot be read ({why}); copy it again, or begin another") from error


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a run's state and all its tensors."""
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if any(Path(file).name != file for file in state["files"]):
        raise ValueError(f"{STATE} names files elsewhere")
    if "sha256" not in state:
        logger.warning("%s is of an earlier version and has no hashes: its files are taken as they are", folder / STATE)
    for file in state["files"] if "sha256" in state else ():
        if _digest(folder / file) != state["sha256"][file]:
            raise ValueError(f"{file} was changed since it was written")
    return state, {name: tensor for file in state["files"] for name, tensor in load_file(folder / file).items()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shards(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the tensors in their order, one dictionary per file."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size + tensor.nbytes > FILE_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards
