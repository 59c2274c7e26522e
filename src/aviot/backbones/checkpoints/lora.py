"""Low-rank adapters (peft) on a decoder's linear layers: their settings, their weights, and their files."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.utils.values import as_tuple, require_fraction, require_positive, require_whole

if TYPE_CHECKING:
    from torch import Tensor, nn

ADAPTER_FOLDER = "adapter"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_PEFT_PREFIX = "base_model.model."
_NAME = ".default."  # peft's name of an adapter, in the names of its weights


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Settings of low-rank adapters on the decoder's linear layers, whose own weights are frozen."""

    rank: int = 64
    alpha: float = 128.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

    def __post_init__(self) -> None:
        require_whole(self, "rank")
        require_positive(self, "alpha")
        require_fraction(self, "dropout")
        targets = as_tuple("targets", self.targets)
        if not targets or not all(isinstance(target, str) for target in targets):
            raise ValueError(f"targets must name the decoder's linear layers, such as q_proj, got {self.targets!r}")
        object.__setattr__(self, "targets", targets)


def require_peft() -> None:
    """Raise ValueError if peft, which adapters need, is not installed."""
    if importlib.util.find_spec("peft") is None:
        raise ValueError("low-rank adapters (lora) need the package peft, which is not installed; pip install peft")


def peft_config(settings: LoraSettings) -> Any:
    """Return the settings as peft's own."""
    from peft import LoraConfig

    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
    )


def inject(decoder: "nn.Module", settings: LoraSettings) -> None:
    """Add adapters to a decoder's linear layers in place; its class and its other names do not change."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(peft_config(settings), decoder)


def is_adapter_weight(name: str) -> bool:
    """Return whether a weight of this name belongs to an adapter."""
    return ".lora_" in name


def peft_name(name: str) -> str:
    """Return the name of a decoder's adapter weight in peft's files."""
    return _PEFT_PREFIX + name.replace(_NAME, ".")


def save_adapters(folder: Path, weights: "Mapping[str, Tensor]", settings: LoraSettings, base: str) -> None:
    """Save a decoder's adapters alone in peft's format, below a checkpoint's folder; `weights` has other names too."""
    from safetensors.torch import save_file

    folder = folder / ADAPTER_FOLDER
    folder.mkdir()
    config = peft_config(settings)
    config.base_model_name_or_path = base
    config.save_pretrained(folder)
    adapters = {peft_name(name): tensor.contiguous() for name, tensor in weights.items() if is_adapter_weight(name)}
    save_file(adapters, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
