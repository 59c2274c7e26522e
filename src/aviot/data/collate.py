"""Collation of examples into batches: the arguments of the model's forward, and data for the training step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from aviot.data.dataset import Clip, Example, Failure, Tokens
from aviot.data.feature_cache import CachedVideo, FeatureCache

IGNORED = -100  # label of unsupervised positions, torch's default `ignore_index`
MODEL_KEYS = (
    "input_ids",
    "attention_mask",
    "labels",
    "question_span",
    "video_index",
    "pixel_values",
    "frame_counts",
)


class Batch(TypedDict):
    """A micro batch: prompt i asks about video i, which `clips[i]` describes.

    `pixel_values` and `frame_counts` hold the videos whose features were not cached, and are absent if there are none.
    `where` names the file and line of each prompt's record, `positions` its position in the run; `failures` are records
    that could not be loaded and were replaced.
    `model_inputs` returns the arguments of `forward` for it.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    question_span: Tensor
    video_index: Tensor
    pixel_values: NotRequired[Tensor]
    frame_counts: NotRequired[Tensor]
    clips: tuple[Clip, ...]
    conversations: tuple[Tokens, ...]
    ratios: list[float]
    ids: list[str]
    where: list[str]
    positions: list[int]
    failures: tuple[Failure, ...]


class Collate:
    """Collate function that pads on the right; the attention mask marks the padding.

    The frames of all videos become one tensor, or (`join_frames` False) stay with their clips, in sizes of their own.
    """

    def __init__(self, pad_token_id: int, *, join_frames: bool = True) -> None:
        self.pad_token_id, self.join_frames = pad_token_id, join_frames

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """Return a batch of these examples."""
        tokens = [example.tokens for example in examples]
        batch = Batch(
            input_ids=_pad([conversation.ids for conversation in tokens], self.pad_token_id),
            attention_mask=_pad([[1] * len(conversation.ids) for conversation in tokens], 0),
            labels=_pad([conversation.labels for conversation in tokens], IGNORED),
            question_span=_pad([conversation.questions for conversation in tokens], (0, 0)),
            video_index=torch.arange(len(examples)),
            clips=tuple(_without_pixels(example.clip) if self.join_frames else example.clip for example in examples),
            conversations=tuple(tokens),
            ratios=[example.ratio for example in examples],
            ids=[example.id for example in examples],
            where=[example.where for example in examples],
            positions=[example.position for example in examples],
            failures=tuple(failure for example in examples for failure in example.failures),
        )
        pixels = [example.clip.pixels for example in examples if example.clip.pixels is not None]
        if pixels and self.join_frames:
            batch["pixel_values"] = torch.cat(pixels)
            batch["frame_counts"] = torch.tensor([len(frames) for frames in pixels])
        return batch


def model_inputs(batch: Batch) -> dict[str, Any]:
    """Return the arguments of the model's `forward`; `encoded` has cached features, None for videos with pixels."""
    arguments: dict[str, Any] = {name: batch[name] for name in MODEL_KEYS if name in batch}  # type: ignore[literal-required]
    device = batch["input_ids"].device
    cached = [clip.features for clip in batch["clips"]]
    arguments["encoded"] = [None if features is None else features.to(device) for features in cached]
    return arguments | {"ratio": batch["ratios"]}


def keep_features(
    batch: Batch,
    encoded: Sequence[Tensor],
    cache: FeatureCache,
    dtype: torch.dtype,
    extras: Sequence[Mapping[str, Tensor]] | None = None,
) -> None:
    """Store the features of the batch's videos that were not cached yet, with what else belongs to each."""
    for clip, features, more in zip(batch["clips"], encoded, extras or [{}] * len(encoded), strict=True):
        if clip.features is None and clip.key is not None:
            cache.put(clip.key, CachedVideo(features.to(dtype), clip.times, clip.duration, more))


def _pad(rows: Sequence[Sequence[Any]], value: int | tuple[int, int]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def _without_pixels(clip: Clip) -> Clip:
    """Return a clip without its frames, so that the worker does not send them to the trainer twice."""
    return replace(clip, pixels=None)
