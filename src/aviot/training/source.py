"""The data of a run: its corpus, and batches ahead of the step that asks for them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from aviot.data import (
    Batch,
    BatchLayout,
    CachedFeatures,
    Collate,
    Corpus,
    CostModel,
    DataConfig,
    FeatureCache,
    FeatureKeys,
    StepBatches,
    VideoDataset,
    fingerprint,
)
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.training.config import TrainingConfig
from aviot.training.held_out import HeldOut
from aviot.training.interruption import shield_worker

Positions = StepBatches | list[list[int]]


class Unending:
    """Batches without a length, so that the Trainer counts steps and not passes over the data."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loader)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What the trainer asks of the data."""

    dataset: VideoDataset
    layout: BatchLayout
    cost: CostModel
    config: TrainingConfig
    pad_token_id: int
    held_out: HeldOut | None = None

    @property
    def cache(self) -> FeatureCache | None:
        """Where features that the encoder has just made are kept."""
        return None if self.dataset.features is None else self.dataset.features.cache

    def batches(self, start_step: int) -> Unending:
        """This process's micro batches from a step on; nothing before it is read or decoded."""
        steps = self.config.optimization.steps
        order = StepBatches(self.dataset.order, self.layout, self.cost, steps=steps, start_step=start_step)
        return Unending(_loader(self.config, self.pad_token_id, self.dataset, order))


def data_config(config: TrainingConfig, model: AviotForConditionalGeneration) -> DataConfig:
    """The data's settings with what follows from the model: tokens a support, and the longest prompt."""
    limit = config.data.max_tokens or model.config.text_config.max_position_embeddings
    return replace(config.data, max_tokens=limit, tokens_per_support=model.model.connector.tokens_per_support)


def _loader(config: TrainingConfig, pad_token_id: int, dataset: VideoDataset, positions: Positions) -> DataLoader:
    """Return batches ahead of the step that asks for them.

    The loader has a generator of its own: it must not take numbers out of the one that is resumed.
    """
    loader = config.loader
    ahead: dict[str, Any] = {"prefetch_factor": loader.ahead} if loader.workers else {}
    return DataLoader(
        dataset,
        batch_sampler=positions,
        collate_fn=Collate(pad_token_id),
        num_workers=loader.workers,
        worker_init_fn=shield_worker,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
        **ahead,
    )


def open_held_out(config: TrainingConfig) -> Corpus | None:
    """Find the held-out records, checked, if the configuration names any."""
    chosen = config.held_out
    if chosen is None:
        return None
    root = config.data.video_root if chosen.video_root is None else chosen.video_root
    return Corpus.open(replace(config.data, records=chosen.records, video_root=root))


def training_data(
    config: TrainingConfig,
    corpus: Corpus,
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    layout: BatchLayout,
    held_out: Corpus | None = None,
) -> TrainingData:
    """Put everything together for one process."""
    data = data_config(config, model)
    features = _features(config, model.model.vision_tower, processor)
    tokenizer = processor.tokenizer
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    pad = 0 if pad is None else pad
    loader = partial(_loader, config, pad)
    limit = None if config.held_out is None else config.held_out.limit
    return TrainingData(
        dataset=VideoDataset(corpus, processor, data, features=features),
        layout=layout,
        cost=CostModel(processor.fps, processor.max_frames, data.tokens_per_support),
        config=config,
        pad_token_id=pad,
        held_out=None
        if held_out is None
        else HeldOut(VideoDataset(held_out, processor, data, features=features), limit, layout, loader),
    )


def feature_dtype(config: TrainingConfig) -> torch.dtype:
    """The type that the frozen encoder runs and its features are kept in."""
    return torch.bfloat16 if config.precision == "bf16" else torch.float32


def _features(config: TrainingConfig, encoder: nn.Module, processor: AviotProcessor) -> CachedFeatures | None:
    if config.cache is None:
        return None
    keys = FeatureKeys(
        fps=processor.fps,
        max_frames=processor.max_frames,
        image_size=processor.image_size,
        encoder=fingerprint(encoder.state_dict()),
        dtype=str(feature_dtype(config)).removeprefix("torch."),
    )
    return CachedFeatures(FeatureCache(config.cache.folder, int(config.cache.gigabytes * 1e9)), keys)
