"""Examples put together: what the model's forward takes, and what a training step wants to know."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from aviot.data.dataset import Clip, Example
from aviot.data.failures import Failure
from aviot.data.feature_cache import EncodedVideo, FeatureCache

IGNORED = -100  # the label of positions that are not supervised, as everywhere in torch
MODEL_KEYS = ("input_ids", "attention_mask", "labels", "question_span", "video_index")

Encode = Callable[[Tensor, Sequence[int]], Sequence[Tensor]]
"""A model's `encode`: the frames of several videos and how many each has, to the features of each."""


class Batch(TypedDict):
    """A micro batch. Prompt i asks about video i; `clips` tells what is known of each video.

    `pixel_values` and `frame_counts` hold the videos whose features were not cached, and are left out if there are
    none; without a cache they are what `forward` takes. `with_features` replaces them by `encoded`.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    question_span: Tensor
    video_index: Tensor
    pixel_values: NotRequired[Tensor]
    frame_counts: NotRequired[Tensor]
    encoded: NotRequired[tuple[Tensor, ...]]
    clips: tuple[Clip, ...]
    ratios: list[float]
    ids: list[str]
    positions: list[int]
    failures: tuple[Failure, ...]


class Collate:
    """Pads on the right; the model goes by the attention mask."""

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """One batch of these examples."""
        tokens = [example.tokens for example in examples]
        batch = Batch(
            input_ids=_padded([one.ids for one in tokens], self.pad_token_id),
            attention_mask=_padded([[1] * len(one.ids) for one in tokens], 0),
            labels=_padded([one.labels for one in tokens], IGNORED),
            question_span=torch.tensor([(one.questions[0][0], one.questions[-1][1]) for one in tokens]),
            video_index=torch.arange(len(examples)),
            clips=tuple(_without_pixels(example.clip) for example in examples),
            ratios=[example.ratio for example in examples],
            ids=[example.id for example in examples],
            positions=[example.position for example in examples],
            failures=tuple(failure for example in examples for failure in example.failures),
        )
        pixels = [example.clip.pixels for example in examples if example.clip.pixels is not None]
        if pixels:
            batch["pixel_values"] = torch.cat(pixels)
            batch["frame_counts"] = torch.tensor([len(frames) for frames in pixels])
        return batch


def with_features(batch: Batch, encode: Encode, cache: FeatureCache | None = None) -> Batch:
    """The batch with the features of every video as `encoded` in place of pixels, new ones kept in the cache.

    The encoder is frozen: no gradient is recorded.
    """
    fresh: Iterator[Tensor] = iter(())
    if "pixel_values" in batch:
        with torch.no_grad():
            fresh = iter(encode(batch["pixel_values"], batch["frame_counts"].tolist()))
    encoded = []
    for clip in batch["clips"]:
        features = next(fresh) if clip.features is None else clip.features
        if clip.features is None and cache is not None and clip.key is not None:
            cache.put(clip.key, EncodedVideo(features, clip.times, clip.duration))
        encoded.append(features.to(batch["input_ids"].device))
    rest: dict[str, Any] = {name: batch[name] for name in batch if name not in ("pixel_values", "frame_counts")}  # type: ignore[literal-required]
    return Batch(**rest, encoded=tuple(encoded))  # type: ignore[typeddict-item]


def split_by_ratio(batch: Batch) -> Iterator[tuple[float, dict[str, Any]]]:
    """Each ratio of a batch and the model's arguments for the prompts that have it; for batches with features.

    `encoded` stays whole, since `video_index` says which of it a prompt asks about.
    """
    if "encoded" not in batch:
        raise ValueError("the batch has pixels; give it features first, with with_features(batch, model.encode)")
    for ratio in sorted(set(batch["ratios"])):
        rows = [row for row, drawn in enumerate(batch["ratios"]) if drawn == ratio]
        arguments: dict[str, Any] = {name: batch[name][rows] for name in MODEL_KEYS}  # type: ignore[literal-required]
        yield ratio, arguments | {"encoded": batch["encoded"]}


def _padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def _without_pixels(clip: Clip) -> Clip:
    """The frames are in the batch already; carrying them twice would send them twice from worker to trainer."""
    return Clip(clip.times, clip.duration, None, clip.features, clip.key)
