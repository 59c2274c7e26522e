"""Placing videos in token sequences: pure functions of ids, masks and embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from aviot.methods.aviot.finite import FiniteFlags

IGNORED = -100  # the label of positions that are not supervised


@dataclass(frozen=True)
class Merged:
    """Sequences with their videos in place, padded on the left to one length."""

    embeds: Float[Tensor, "B L d"]
    attention_mask: Int[Tensor, "B L"]
    labels: Int[Tensor, "B L"] | None
    finite: tuple[FiniteFlags, ...] = ()  # checks of the videos' compression that nobody has read yet


def find_video(is_video: Bool[Tensor, "l"]) -> int:
    """Where the single placeholder is; the host has to know, and asks before the device has work that takes long."""
    places = is_video.nonzero().flatten().tolist()
    if len(places) != 1:
        raise ValueError(
            f"each prompt must hold exactly one video placeholder, got {len(places)}; build it with the processor"
        )
    return places[0]


def place_video(
    embeds: Float[Tensor, "l d"],
    place: int,
    video: Float[Tensor, "v d"],
    labels: Int[Tensor, "l"] | None,
) -> tuple[Float[Tensor, "L d"], Int[Tensor, "L"] | None]:
    """One sequence with the placeholder at `place` replaced by the video's tokens, which are never supervised."""
    merged = torch.cat((embeds[:place], video.to(embeds), embeds[place + 1 :]))
    if labels is None:
        return merged, None
    ignored = labels.new_full((len(video),), IGNORED)
    return merged, torch.cat((labels[:place], ignored, labels[place + 1 :]))


def pad_left(sequences: Sequence[Float[Tensor, "l d"]], labels: Sequence[Int[Tensor, "l"] | None]) -> Merged:
    """Sequences of different length in one tensor; generation needs their ends aligned."""
    longest = max(len(sequence) for sequence in sequences)
    gaps = [longest - len(sequence) for sequence in sequences]
    embeds = sequences[0][None]
    if len(sequences) > 1:
        embeds = torch.stack([F.pad(sequence, (0, 0, gap, 0)) for sequence, gap in zip(sequences, gaps, strict=True)])
    positions = torch.arange(longest, device=embeds.device)
    mask = torch.stack([(positions >= gap).long() for gap in gaps])
    padded = [
        F.pad(label, (gap, 0), value=IGNORED) for label, gap in zip(labels, gaps, strict=True) if label is not None
    ]
    return Merged(embeds, mask, torch.stack(padded) if padded else None)


def positions_of(attention_mask: Int[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Position of each token among the present ones, so that padding changes nothing."""
    return (attention_mask.cumsum(-1) - 1).clamp_min(0)
