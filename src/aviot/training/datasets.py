"""The training and held-out data of a run, loaded in advance of the steps that use it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
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
)
from aviot.training.config import TrainingConfig
from aviot.training.loss import HeldOut
from aviot.training.model_setup import feature_dtype
from aviot.training.shutdown import ignore_signals_in_worker
from aviot.training.trained_model import USUAL_TOKENS, TrainedModel, trained_model

Positions = StepBatches | list[list[int]]


class UnsizedLoader:
    """A data loader without a length, so that the Trainer counts steps instead of epochs."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loader)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data of a run for one process."""

    dataset: VideoDataset
    layout: BatchLayout
    cost: CostModel
    config: TrainingConfig
    collate: Collate
    trained: TrainedModel
    held_out: HeldOut | None = None

    @property
    def cache(self) -> FeatureCache | None:
        """Return the cache of encoder features, if there is one."""
        return None if self.dataset.features is None else self.dataset.features.cache

    def batches(self, start_step: int) -> UnsizedLoader:
        """Return this process's micro batches from a step on; nothing before that step is read or decoded."""
        steps = self.config.optimization.steps
        order = StepBatches(self.dataset.order, self.layout, self.cost, steps=steps, start_step=start_step)
        return UnsizedLoader(_loader(self.config, self.collate, self.dataset, order))


def data_config(config: TrainingConfig, trained: TrainedModel) -> DataConfig:
    """Return the data settings completed from the model: tokens per support, and the longest prompt."""
    limit = config.data.max_tokens or trained.max_length
    return replace(config.data, max_tokens=limit, tokens_per_support=trained.tokens_per_support or USUAL_TOKENS)


def _loader(config: TrainingConfig, collate: Collate, dataset: VideoDataset, positions: Positions) -> DataLoader:
    """Return a data loader with its own random generator: the default one is saved and restored with checkpoints."""
    loader = config.loader
    ahead: dict[str, Any] = {"prefetch_factor": loader.ahead} if loader.workers else {}
    return DataLoader(
        dataset,
        batch_sampler=positions,
        collate_fn=collate,
        num_workers=loader.workers,
        worker_init_fn=ignore_signals_in_worker,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
        **ahead,
    )


def open_held_out(config: TrainingConfig) -> Corpus | None:
    """Open and check the held-out records, if the configuration names any."""
    chosen = config.held_out
    if chosen is None:
        return None
    root = config.data.video_root if chosen.video_root is None else chosen.video_root
    return Corpus.open(replace(config.data, records=chosen.records, video_root=root))


def training_data(
    config: TrainingConfig,
    corpus: Corpus,
    model: Any,
    processor: Any,
    layout: BatchLayout,
    held_out: Corpus | None = None,
) -> TrainingData:
    """Return the training and held-out data of one process."""
    trained = trained_model(model, processor)
    data = data_config(config, trained)
    tokenizer = processor.tokenizer
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    collate = Collate(0 if pad is None else pad, join_frames=trained.joins_frames)
    about: dict[str, Any] = {
        "features": _cached_features(config, trained),
        "visual_tokens": trained.visual_tokens,
    }
    loader = partial(_loader, config, collate)
    limit = None if config.held_out is None else config.held_out.limit
    return TrainingData(
        dataset=VideoDataset(corpus, processor, data, **about),
        layout=layout,
        cost=CostModel(processor.fps, processor.max_frames, data.tokens_per_support),
        config=config,
        collate=collate,
        trained=trained,
        held_out=None
        if held_out is None
        else HeldOut(VideoDataset(held_out, processor, data, **about), limit, layout, loader),
    )


def _cached_features(config: TrainingConfig, trained: TrainedModel) -> CachedFeatures | None:
    if config.cache is None:
        return None
    keys = FeatureKeys(
        fps=trained.processor.fps,
        max_frames=trained.processor.max_frames,
        image_size=trained.processor.image_size,
        encoder=trained.encoder_key,
        dtype=str(feature_dtype(config)).removeprefix("torch."),
    )
    return CachedFeatures(FeatureCache(config.cache.folder, int(config.cache.gigabytes * 1e9)), keys)
