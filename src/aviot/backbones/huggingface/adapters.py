"""AVIOT's parts of models that have none of their own: new ones, or an adapter's, with its low-rank matrices."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from aviot.backbones.checkpoints.adapter import PARTS_FILE, Adapter
from aviot.backbones.checkpoints.folder import CheckpointError, reason_of, shown
from aviot.backbones.checkpoints.lora import (
    ADAPTER_FOLDER,
    ADAPTER_WEIGHTS,
    LoraSettings,
    inject,
    is_adapter_weight,
    peft_name,
    require_peft,
)
from aviot.config import CompressorConfig
from aviot.methods.aviot.compressor import Compressor
from aviot.methods.aviot.metric import Linear

SEED = 0  # of the parts of an untrained AVIOT


def new_parts(config: CompressorConfig) -> dict[str, nn.Module]:
    """Return untrained parts of AVIOT, the same every time; questions are projected by the identity to begin with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        compressor = Compressor(config)
        projection = Linear(config.dim, config.dim, bias=False)
    nn.init.eye_(projection.weight)
    return {"compressor": compressor, "question_projection": projection}


def trained_parts(folder: Path, adapter: Adapter, width: int, device: torch.device) -> dict[str, nn.Module]:
    """Load AVIOT's parts for inference."""
    if adapter.compressor.dim != width:
        raise CheckpointError(
            f"{folder} has a compressor for {adapter.compressor.dim} channels, and the model has {width}; it was "
            "changed since it was trained"
        )
    parts = new_parts(adapter.compressor)
    load_parts(folder, nn.ModuleDict(parts))
    return {name: part.eval().requires_grad_(False).to(device) for name, part in parts.items()}


def load_parts(folder: Path, parts: nn.ModuleDict) -> None:
    """Load an adapter's weights into AVIOT's parts."""
    _fill(parts.state_dict(), _read(folder / PARTS_FILE), folder / PARTS_FILE)


def add_adapters(folder: Path, settings: LoraSettings, decoder: nn.Module) -> None:
    """Add an adapter's low-rank matrices to a decoder, for inference."""
    require_peft()
    path = folder / ADAPTER_FOLDER / ADAPTER_WEIGHTS
    ranks = {tensor.shape[0] for name, tensor in _read(path).items() if ".lora_A." in name}
    if ranks != {settings.rank}:
        raise CheckpointError(f"{path}: expected matrices of rank {settings.rank}, got {sorted(ranks)}; copy it again")
    inject(decoder, settings)
    load_adapters(folder, decoder)
    decoder.eval().requires_grad_(False)


def load_adapters(folder: Path, decoder: nn.Module) -> None:
    """Load an adapter's low-rank matrices into a decoder that has them already."""
    path = folder / ADAPTER_FOLDER / ADAPTER_WEIGHTS
    expected = {peft_name(name): each for name, each in decoder.state_dict().items() if is_adapter_weight(name)}
    _fill(expected, _read(path), path)


def sampled_by(adapter: Adapter) -> dict[str, Any]:
    """Return the rate and the largest number of frames that an adapter was trained with."""
    return {"fps": adapter.sampling.fps, "max_frames": adapter.sampling.max_frames}


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: not a whole safetensors file ({reason_of(error)}); copy it again") from error


@torch.no_grad()
def _fill(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors by name; refuse others than those that are expected."""
    differing = sorted(set(expected) ^ set(found)) or sorted(
        name for name, tensor in expected.items() if tensor.shape != found[name].shape
    )
    if differing:
        raise CheckpointError(
            f"{path}: {len(differing)} tensors differ in name or shape from what the adapter's settings say, such as "
            f"{shown(differing[0])}; copy the whole folder again"
        )
    for name, tensor in expected.items():
        if not bool(torch.isfinite(found[name]).all()):
            raise CheckpointError(f"{path}: {shown(name)} is not finite (NaN or infinity); it is damaged")
        tensor.copy_(found[name])
