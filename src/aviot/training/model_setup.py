"""The model to train: its weights loaded, low-rank adapters (peft) added, and frozen weights selected."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config

from aviot.backbones.checkpoints.lora import (
    ADAPTER_FOLDER,
    ADAPTER_WEIGHTS,
    LoraSettings,
    inject,
    is_adapter_weight,
    peft_name,
)
from aviot.backbones.loading import without_progress_bars
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.request import checkpoint_folder
from aviot.training.config import Stage, TrainingConfig

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
    unset_hf_deepspeed_config()
    torch.manual_seed(config.seed)
    try:
        with without_progress_bars():
            model = AviotForConditionalGeneration.from_pretrained(source, dtype=torch.float32)
    finally:
        if deepspeed is not None:
            set_hf_deepspeed_config(deepspeed)
    if config.lora is not None:
        inject(model.model.language_model, config.lora)
        if checkpoint is not None:
            load_adapters(model, checkpoint)
    if checkpoint is None and config.compressor is not None:
        model.reconfigure(model.config.compressor.switched(**config.compressor))
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
        return is_adapter_weight(name)
    return not name.startswith(ENCODER)


def freeze_untrained(model: nn.Module, stage: Stage, *, adapters: bool = False) -> None:
    """Freeze every weight that the stage does not train."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(is_trained(name, stage, adapters=adapters))


def merge_adapters(state: Mapping[str, Tensor], settings: LoraSettings) -> dict[str, Tensor]:
    """Return the state of the same model without adapters, where W + alpha / rank · B A replaces each adapted W."""
    merged = {_PEFT_SUFFIX.sub(r".\2", name): tensor for name, tensor in state.items() if not is_adapter_weight(name)}
    for name, down in state.items():
        if ".lora_A." in name:
            up = state[name.replace(".lora_A.", ".lora_B.")]
            target = _PEFT_SUFFIX.sub(r".\2", name)
            change = settings.alpha / settings.rank * (up.float() @ down.float())
            merged[target] = (merged[target].float() + change).to(merged[target].dtype)
    return merged


def load_adapters(model: AviotForConditionalGeneration, checkpoint: Path) -> None:
    """Load a checkpoint's adapters and compressor constants, and of its merged weights those outside the decoder."""
    adapters = load_file(checkpoint / ADAPTER_FOLDER / ADAPTER_WEIGHTS)
    whole = AviotForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    model.reconfigure(whole.config.compressor)
    merged = whole.state_dict()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if is_adapter_weight(name):
                tensor.copy_(adapters[peft_name(name.removeprefix(LANGUAGE_MODEL))])
            elif not name.startswith(DECODER):
                tensor.copy_(merged[name])


def decoder_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the decoder's part of a model's state, by the decoder's own names."""
    return {name.removeprefix(LANGUAGE_MODEL): each for name, each in state.items() if name.startswith(LANGUAGE_MODEL)}
