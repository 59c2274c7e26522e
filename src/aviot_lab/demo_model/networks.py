"""Models that a run begins with: untrained ones of each architecture, or a checkpoint's."""

from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.qwen import SPECIAL, new_qwen
from aviot_lab.demo_model.tokenizer import tokenizer_of

Architecture = Literal["llava", "qwen"]


def new_network(run: Path, architecture: Architecture, seed: int) -> tuple[PreTrainedTokenizerFast, Any]:
    """Return a run's tokenizer, or a new one, and an untrained model."""
    if architecture == "llava":
        tokenizer = tokenizer_of(run)
        return tokenizer, new_model(tokenizer, seed)
    tokenizer = tokenizer_of(run, SPECIAL)
    return tokenizer, new_qwen(tokenizer, seed)


def loaded_weights(folder: Path) -> tuple[PreTrainedTokenizerFast, AviotForConditionalGeneration]:
    """Return the tokenizer and the model of a checkpoint of the demo model's architecture, in float32."""
    model = AviotForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return AviotProcessor.from_pretrained(folder).tokenizer, model
