"""Low-rank adapters on the decoder, by peft; saved merged, and beside that as peft keeps them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from aviot.models import AviotForConditionalGeneration
from aviot.training.config import LoraSettings

FOLDER = "adapter"
WEIGHTS = "adapter_model.safetensors"
_DECODER = "model.language_model."
_PART = re.compile(r"\.(base_layer|lora_[AB]\.default)\.(weight|bias)$")


def add_adapters(model: AviotForConditionalGeneration, settings: LoraSettings) -> None:
    """Put adapters beside the decoder's linear maps, in place: the model keeps its class and other names."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(_peft_config(settings), model.model.language_model)


def merge(state: Mapping[str, Tensor], settings: LoraSettings) -> dict[str, Tensor]:
    """The state of the same model without adapters: W + alpha / rank · B A in their places."""
    merged = {_PART.sub(r".\2", name): tensor for name, tensor in state.items() if ".lora_" not in name}
    for name, down in state.items():
        if ".lora_A." in name:
            up = state[name.replace(".lora_A.", ".lora_B.")]
            target = _PART.sub(r".\2", name)
            change = settings.alpha / settings.rank * (up.float() @ down.float())
            merged[target] = (merged[target].float() + change).to(merged[target].dtype)
    return merged


def save_adapters(folder: Path, state: Mapping[str, Tensor], settings: LoraSettings, base: str) -> None:
    """The adapters alone, as peft writes them for the decoder."""
    folder = folder / FOLDER
    folder.mkdir()
    config = _peft_config(settings)
    config.base_model_name_or_path = base
    config.save_pretrained(folder)
    save_file(
        {_published(name): tensor.contiguous() for name, tensor in state.items() if ".lora_" in name},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )


def load_adapters(model: AviotForConditionalGeneration, checkpoint: Path) -> None:
    """Put back the adapters of a checkpoint, and of its merged weights those outside the decoder."""
    adapters = load_file(checkpoint / FOLDER / WEIGHTS)
    state = model.state_dict()
    found = AviotForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            if ".lora_" in name:
                tensor.copy_(adapters[_published(name)])
            elif not name.startswith((_DECODER, "lm_head.")):
                tensor.copy_(found[name])


def _published(name: str) -> str:
    return "base_model.model." + name.removeprefix(_DECODER).replace(".default.", ".")


def _peft_config(settings: LoraSettings) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
    )
