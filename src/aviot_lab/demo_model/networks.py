"""Models that a run begins with: untrained ones of each architecture, or a checkpoint's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerFast

from aviot.config import SWITCHES, CompressorConfig
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


def switches_of(text: str) -> dict[str, Any]:
    """Return the compressor's switches of a text such as "allocation=calibrated question_cost=false"."""
    found: dict[str, Any] = {}
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in SWITCHES or not value:
            raise ValueError(f"a switch is NAME=VALUE with a name of {', '.join(SWITCHES)}, got {part}")
        found[name] = {"true": True, "false": False}.get(value, value)
    return found


def compressor_config(model: Any) -> CompressorConfig | None:
    """Return the constants of a model's compressor; None without one."""
    return model.config.compressor if isinstance(model, AviotForConditionalGeneration) else None


def configure(model: Any, stored: CompressorConfig | None, switches: Mapping[str, Any]) -> None:
    """Give a model's compressor the constants that a run has stored, if any, and a new run's switches.

    Steps of the recipe are past the compressor's warm-up, so a calibrated allocation begins with a threshold: zero,
    which every question reaches.
    """
    own = compressor_config(model)
    if own is None:
        if switches:
            raise ValueError(f"a model without a compressor has no switches, got {', '.join(switches)}; leave them out")
        return
    config = (own if stored is None else stored).switched(**switches)
    if config.allocation.rule == "calibrated" and config.allocation.evidence_threshold is None:
        config = config.switched(allocation={"evidence_threshold": 0.0})
    model.reconfigure(config)


def loaded_weights(folder: Path) -> tuple[PreTrainedTokenizerFast, AviotForConditionalGeneration]:
    """Return the tokenizer and the model of a checkpoint of the demo model's architecture, in float32."""
    model = AviotForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return AviotProcessor.from_pretrained(folder).tokenizer, model
