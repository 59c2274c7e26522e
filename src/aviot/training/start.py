"""The model a run begins or goes on with, ready to be trained."""

from pathlib import Path
from typing import Any

import torch
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config
from transformers.utils import logging

from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.request import checkpoint_folder
from aviot.training.adapters import add_adapters, load_adapters
from aviot.training.config import TrainingConfig
from aviot.training.source import feature_dtype
from aviot.training.stages import choose_weights


def load_model(config: TrainingConfig, checkpoint: Path | None, deepspeed: Any = None) -> AviotForConditionalGeneration:
    """The starting point's weights, or a checkpoint's, in float32; what is frozen in the type it runs in.

    With adapters the decoder's own weights are always the starting point's. `deepspeed` is the Trainer's record of
    DeepSpeed's settings, put out of sight while weights are loaded: ZeRO-3 would otherwise shard them one by one, which
    only transformers' own layout survives. It shards the whole model afterwards.
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
    choose_weights(model, config.stage, adapters=config.lora is not None)
    for weight in model.parameters():
        if not weight.requires_grad:
            weight.data = weight.data.to(feature_dtype(config))
    if config.gradient_checkpointing:
        model.model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def load_processor(config: TrainingConfig, checkpoint: Path | None) -> AviotProcessor:
    """The processor of the starting point or a checkpoint, sampling as the run does."""
    source = checkpoint_folder(config.model) if checkpoint is None else checkpoint
    return AviotProcessor.from_pretrained(source, fps=config.video.fps, max_frames=config.video.max_frames)
