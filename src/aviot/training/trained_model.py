"""The model that a run trains and writes: whole, or an adapter for another; the rest of training treats both alike."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aviot.backbones.checkpoints.lora import save_adapters
from aviot.config import CompressorConfig
from aviot.data import Batch, FeatureCache, fingerprint, keep_features, model_inputs
from aviot.data.dataset import VisualTokens
from aviot.methods.aviot.allocation import recalibrated
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.training.adapted_data import FamilyProcessor
from aviot.training.adapted_model import AdaptedModel, stored_with
from aviot.training.config import TrainingConfig
from aviot.training.model_setup import decoder_weights, merge_adapters

USUAL_TOKENS = 200  # of a frame, for estimates of costs where the number depends on the video


class TrainedModel(ABC):
    """A model in training and its processor."""

    model: Any
    processor: Any
    joins_frames: bool  # False: every video's frames have a size of their own
    visual_tokens: VisualTokens | None = None

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The longest sequence that the decoder reads."""

    @property
    @abstractmethod
    def tokens_per_support(self) -> int | None:
        """The number of decoder tokens of a support; None if it depends on the video."""

    @property
    @abstractmethod
    def encoder_key(self) -> str:
        """A hash of everything that an encoded video depends on, besides its pixels."""

    @property
    def compressor(self) -> CompressorConfig:
        """The compressor's constants."""
        return self.model.config.compressor

    def observe(self, evidence: Sequence[float]) -> None:
        """Move the evidence threshold of a calibrated allocation by the questions of a step."""
        self.model.reconfigure(recalibrated(self.compressor, evidence))

    @abstractmethod
    def inputs(self, batch: Batch, *, encoded: bool) -> dict[str, Any]:
        """Return a batch as arguments of `forward`, which also returns the encoded videos if asked for."""

    @abstractmethod
    def keep(self, batch: Batch, encoded: Any, cache: FeatureCache, dtype: torch.dtype) -> None:
        """Cache the encoded videos of a batch that were not cached yet."""

    @abstractmethod
    def write(self, model: Any, folder: Path, state: dict[str, Tensor], config: TrainingConfig) -> None:
        """Write a checkpoint's weights; `model` is this one, as the Trainer has prepared it."""


class WholeModel(TrainedModel):
    """A LLaVA-Video model: checkpoints are whole models, with adapters merged into the decoder."""

    joins_frames = True

    def __init__(self, model: AviotForConditionalGeneration, processor: AviotProcessor) -> None:
        self.model, self.processor = model, processor

    @property
    def max_length(self) -> int:
        """The language model's positions."""
        return self.model.config.text_config.max_position_embeddings

    @property
    def tokens_per_support(self) -> int:
        """Pooled rows, each with its separator."""
        return self.model.model.connector.tokens_per_support

    @cached_property
    def encoder_key(self) -> str:
        """The hash of the vision tower's weights."""
        return fingerprint(self.model.model.vision_tower.state_dict())

    def inputs(self, batch: Batch, *, encoded: bool) -> dict[str, Any]:
        """Return token ids, pixels or cached features, and ratios."""
        keep = {"logits_to_keep": batch["input_ids"].shape[1], "use_cache": False}
        return model_inputs(batch) | keep | {"output_compression": True, "output_encoded": encoded}

    def keep(self, batch: Batch, encoded: Any, cache: FeatureCache, dtype: torch.dtype) -> None:
        """Cache vision features."""
        keep_features(batch, encoded, cache, dtype)

    def write(self, model: Any, folder: Path, state: dict[str, Tensor], config: TrainingConfig) -> None:
        """Write model and processor, and adapters as they are beside the merged weights."""
        if config.lora is not None:
            save_adapters(folder, decoder_weights(state), config.lora, config.model)
            state = merge_adapters(state, config.lora)
        model.save_pretrained(folder, state_dict=state)
        self.processor.save_pretrained(folder)


class AdapterForModel(TrainedModel):
    """Any other family's model: checkpoints are adapters for it."""

    joins_frames = False

    def __init__(self, model: AdaptedModel, processor: FamilyProcessor) -> None:
        self.model, self.processor = model, processor
        self.visual_tokens = processor.visual_tokens

    @property
    def max_length(self) -> int:
        """The language model's positions."""
        return self.model.backbone.max_length

    @property
    def tokens_per_support(self) -> None:
        """It depends on the video."""
        return

    @cached_property
    def encoder_key(self) -> str:
        """The hash of all frozen weights outside the decoder, and of the settings of the family's preprocessing."""
        model = self.model
        parts = model.decoder, model.base.get_output_embeddings()
        decoder = {id(weight) for part in parts for weight in _state(part).values()}
        weights = {name: each for name, each in _state(model.base).items() if id(each) not in decoder}
        settings = json.dumps(model.backbone.settings, sort_keys=True, default=str)
        return hashlib.sha256(f"{fingerprint(weights)} {settings}".encode()).hexdigest()

    def inputs(self, batch: Batch, *, encoded: bool) -> dict[str, Any]:
        """Return clips, conversations and ratios: token ids follow from the compressed videos."""
        return {"clips": batch["clips"], "conversations": batch["conversations"], "ratio": batch["ratios"]}

    def keep(self, batch: Batch, encoded: Any, cache: FeatureCache, dtype: torch.dtype) -> None:
        """Cache projected tokens, with their grid, times and extras."""
        extras = [stored_with(one, dtype) for one in encoded]
        keep_features(batch, [one.features for one in encoded], cache, dtype, extras)

    def write(self, model: Any, folder: Path, state: dict[str, Tensor], config: TrainingConfig) -> None:
        """Write what was trained, and the identity of the base."""
        model.save_pretrained(folder, state_dict=state)


def _state(part: Any) -> Mapping[str, Tensor]:
    return part.state_dict(keep_vars=True)


def trained_model(model: Any, processor: Any) -> TrainedModel:
    """Return a model and its processor as the rest of training uses them."""
    if isinstance(model, AdaptedModel):
        return AdapterForModel(model, processor)
    return WholeModel(model, processor)
