"""The model to train: its weights loaded, low-rank adapters (peft) added, and frozen weights selected."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config
from transformers.utils import logging

from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.request import checkpoint_folder
from aviot.training.config import LoraSettings, Stage, TrainingConfig

ADAPTER_FOLDER = "adapter"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

ENCODER = "model.vision_tower."
COMPRESSOR = ("model.compressor.", "model.position.", "model.question_projection.")
LANGUAGE_MODEL = "model.language_model."
DECODER = (LANGUAGE_MODEL, "lm_head.")

_PEFT_SUFFIX = re.compile(r"\.(base_layer|lora_[AB]\.default)\.(weight|bias)$")


def load_model(config: TrainingConfig, checkpoint: Path | None, deepspeed: Any = None) -> AviotForConditionalGeneration:
    """Load the model from `config.model` or a checkpoint: trained weights in float32, frozen ones in `feature_dtype`.

    With adapters the decoder's own weights always come from `config.model`. `deepspeed` is the Trainer's object of
    DeepSpeed settings. It is unset while weights are loaded: ZeRO-3 would otherwise partition them one by one, which
    works for transformers' own layout only. DeepSpeed partitions the complete model later.
    """
    source = checkpoint_folder(config.model) if checkpoint is None or config.lora is not None else checkpoint
    logging.disable_progress_bar()
    unset_hf_deepspeed_config()
    torch.manual_seed(config.seed)
    try:
        model = AviotForConditionalGeneration.from_pretrained(source, dtype=torch.float32)
    finally:
        if deepspeed is not None:
            set_hf_deepspeed_config(deepspeed)
    if config.lora is not None:
        add_adapters(model, config.lora)
        if checkpoint is not None:
            load_adapters(model, checkpoint)
    freeze_untrained(model, config.stage, adapters=config.lora is not None)
    for weight in model.parameters():
        if not weight.requires_grad:
            weight.data = weight.data.to(feature_dtype(config))
    if config.gradient_checkpointing:
        model.model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def load_processor(config: TrainingConfig, checkpoint: Path | None) -> AviotProcessor:
    """Load the processor of `config.model` or of a checkpoint of the run, with the run's frame sampling."""
    source = checkpoint_folder(config.model) if checkpoint is None else checkpoint
    return AviotProcessor.from_pretrained(source, fps=config.video.fps, max_frames=config.video.max_frames)


def feature_dtype(config: TrainingConfig) -> torch.dtype:
    """Return the dtype of frozen weights and of cached encoder features."""
    return torch.bfloat16 if config.precision == "bf16" else torch.float32


def is_trained(name: str, stage: Stage, *, adapters: bool = False) -> bool:
    """Return whether a stage trains the weight of this name.

    "joint" is the paper's stage: language model, projector with the row separator, position and region projections,
    question projection, metric and gate. With adapters, low-rank matrices are trained instead of the decoder's weights.
    """
    if stage == "compressor":
        return name.startswith(COMPRESSOR)
    if adapters and name.startswith(DECODER):
        return ".lora_" in name
    return not name.startswith(ENCODER)


def freeze_untrained(model: nn.Module, stage: Stage, *, adapters: bool = False) -> None:
    """Freeze every weight that the stage does not train."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(is_trained(name, stage, adapters=adapters))


def add_adapters(model: AviotForConditionalGeneration, settings: LoraSettings) -> None:
    """Add adapters to the decoder's linear layers in place; the model's class and its other names do not change."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(_peft_config(settings), model.model.language_model)


def merge_adapters(state: Mapping[str, Tensor], settings: LoraSettings) -> dict[str, Tensor]:
    """Return the state of the same model without adapters, where W + alpha / rank · B A replaces each adapted W."""
    merged = {_PEFT_SUFFIX.sub(r".\2", name): tensor for name, tensor in state.items() if ".lora_" not in name}
    for name, down in state.items():
        if ".lora_A." in name:
            up = state[name.replace(".lora_A.", ".lora_B.")]
            target = _PEFT_SUFFIX.sub(r".\2", name)
            change = settings.alpha / settings.rank * (up.float() @ down.float())
            merged[target] = (merged[target].float() + change).to(merged[target].dtype)
    return merged


def save_adapters(folder: Path, state: Mapping[str, Tensor], settings: LoraSettings, base: str) -> None:
    """Save the adapters alone in peft's format for the decoder, below a checkpoint's folder."""
    folder = folder / ADAPTER_FOLDER
    folder.mkdir()
    config = _peft_config(settings)
    config.base_model_name_or_path = base
    config.save_pretrained(folder)
    save_file(
        {_peft_name(name): tensor.contiguous() for name, tensor in state.items() if ".lora_" in name},
        folder / ADAPTER_WEIGHTS,
        metadata={"format": "pt"},
    )


def load_adapters(model: AviotForConditionalGeneration, checkpoint: Path) -> None:
    """Load a checkpoint's adapters, and from its merged weights those outside the decoder."""
    adapters = load_file(checkpoint / ADAPTER_FOLDER / ADAPTER_WEIGHTS)
    merged = AviotForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).state_dict()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if ".lora_" in name:
                tensor.copy_(adapters[_peft_name(name)])
            elif not name.startswith(DECODER):
                tensor.copy_(merged[name])


def _peft_name(name: str) -> str:
    """Return the name of an adapter weight in peft's files."""
    return "base_model.model." + name.removeprefix(LANGUAGE_MODEL).replace(".default.", ".")


def _peft_config(settings: LoraSettings) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
    )
