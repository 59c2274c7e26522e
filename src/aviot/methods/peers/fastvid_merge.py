"""FastVID's merge: every other token of a segment joins the most similar anchor of each of its anchor frames.

Shapes: g spans, m anchor frames of each, k anchors of a frame, S sources (the tokens of a span), C channels.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.merged import Sources


class Span(NamedTuple):
    """A run of frames."""

    start: int
    length: int


class Anchors(NamedTuple):
    """Anchors of frames `frames`: their patches, best first, which of them exist, and the frames that they absorb."""

    frames: Int[Tensor, "A"]
    patch: Int[Tensor, "A k"]
    valid: Bool[Tensor, "A k"]
    spans: list[Span]

    def flat(self, patches: int) -> Int[Tensor, "A k"]:
        """Return the anchors' indices in all tokens of the video, frame by frame."""
        return self.frames[:, None] * patches + self.patch


class SpanBatch(NamedTuple):
    """Spans of one length, with equally many anchor frames each."""

    frames: Int[Tensor, "G L"]
    anchors: Int[Tensor, "G M"]  # numbers in `Anchors.frames`


@dataclass(frozen=True, eq=False)
class Absorbed:
    """Sources assigned to anchors.

    `choice` is the number of the anchor that a source joins in each anchor frame; it counts only where the source is
    `usable` for that frame. `count` is the number of sources that join an anchor, `mean` their mean.
    """

    choice: Int[Tensor, "g m S"]
    usable: Bool[Tensor, "g m S"]
    count: Int[Tensor, "g m k"]
    mean: Float[Tensor, "g m k C"]


def batches(anchors: Anchors) -> Iterator[SpanBatch]:
    """Group anchor frames by span, and spans by their length and number of anchor frames."""
    device = anchors.frames.device
    members: dict[Span, list[int]] = defaultdict(list)
    for number, span in enumerate(anchors.spans):
        members[span].append(number)
    alike: dict[tuple[int, int], list[tuple[int, list[int]]]] = defaultdict(list)
    for span, numbers in members.items():
        alike[span.length, len(numbers)].append((span.start, numbers))
    for (length, _), found in alike.items():
        starts = torch.tensor([start for start, _ in found], device=device)
        own = torch.tensor([numbers for _, numbers in found], device=device)
        yield SpanBatch(starts[:, None] + torch.arange(length, device=device), own)


def absorb(
    sources: Float[Tensor, "g S C"],
    anchors: Float[Tensor, "g m k C"],
    usable: Bool[Tensor, "g m S"],
    valid: Bool[Tensor, "g m k"],
) -> Absorbed:
    """Assign every source to its most similar anchor of each anchor frame, and average what each anchor gets."""
    units, targets = functional.normalize(sources, dim=-1), functional.normalize(anchors, dim=-1)
    similarity = torch.einsum("gmkc,gsc->gmks", targets, units).masked_fill(~valid[..., None], -torch.inf)
    choice = similarity.argmax(2)
    joins = (choice[:, :, None] == torch.arange(valid.shape[2], device=choice.device)[:, None]) & usable[:, :, None]
    count = joins.sum(-1)
    sums = torch.einsum("gmks,gsc->gmkc", joins.to(sources.dtype), sources)
    return Absorbed(choice, usable, count, sums / count.clamp_min(1)[..., None])


def merge_into(
    x: Float[Tensor, "T N C"], salient: Bool[Tensor, "T N"], anchors: Anchors, own_weight: float, *, absorb_own: bool
) -> tuple[Int[Tensor, "n"], Float[Tensor, "n C"], Sources]:
    """Return flat indices of salient tokens and anchors, ascending, the tokens there, and their sources.

    An anchor keeps the larger of `own_weight` and 1 / (n + 1) of itself, with n tokens that join it; their mean has
    the rest. All tokens of its span that are not salient may join: with `absorb_own` also the anchors of its own frame,
    which join themselves.
    """
    patches, flat = x.shape[1], anchors.flat(x.shape[1])
    here = torch.zeros_like(salient).flatten()
    here[flat[anchors.valid]] = True
    index = torch.nonzero(salient.flatten() | here)[:, 0]
    place = (salient.flatten() | here).cumsum(0) - 1
    tokens = x.flatten(0, 1)[index]
    kept = torch.nonzero(salient.flatten())[:, 0]
    entries = [(place[kept], kept, torch.ones(len(kept), dtype=working_dtype(x.dtype), device=x.device))]
    own = here.view_as(salient)
    for batch in batches(anchors):
        for frames, numbers in _chunks(batch, patches, x.shape[2], flat.shape[1]):
            sources = x[frames].flatten(1, 2).to(working_dtype(x.dtype))
            targets = x.flatten(0, 1)[flat[numbers]].to(sources)
            usable = ~salient[frames].flatten(1)[:, None].expand(-1, numbers.shape[1], -1)
            if not absorb_own:
                at_home = frames[:, None, :] == anchors.frames[numbers][..., None]  # [g,m,L]
                usable = usable & ~(at_home[..., None] & own[frames][:, None]).flatten(2)
            valid = anchors.valid[numbers]
            absorbed = absorb(sources, targets, usable, valid)
            weight = (1 / (absorbed.count + 1).to(sources)).clamp_min(own_weight)
            tokens[place[flat[numbers][valid]]] = torch.lerp(absorbed.mean, targets, weight[..., None])[valid].to(
                x.dtype
            )
            entries.append((place[flat[numbers][valid]], flat[numbers][valid], weight[valid]))
            share = (1 - weight) / absorbed.count.clamp_min(1)
            entries.append(_joined(absorbed, place[flat[numbers]], frames, patches, share))
    return index, tokens, Sources(*(torch.cat(parts) for parts in zip(*entries, strict=True)))


def _chunks(batch: SpanBatch, patches: int, channels: int, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield frames [g,L] and numbers [g,m] of parts of a batch that fit in memory together."""
    sources = batch.frames.shape[1] * patches
    together = chunk_size(sources * max(channels, batch.anchors.shape[1] * most))
    for frames, numbers in zip(batch.frames.split(together), batch.anchors.split(together), strict=True):
        for part in numbers.split(chunk_size(len(frames) * max(sources, channels) * most), dim=1):
            yield frames, part


def _joined(
    absorbed: Absorbed,
    place: Int[Tensor, "g m k"],
    frames: Int[Tensor, "g L"],
    patches: int,
    share: Float[Tensor, "g m k"],
) -> tuple[Int[Tensor, "e"], Int[Tensor, "e"], Float[Tensor, "e"]]:
    """Return output, source and weight of every source that joins an anchor."""
    source = (frames[..., None] * patches + torch.arange(patches, device=frames.device)).flatten(1)
    token, weight = place.gather(2, absorbed.choice), share.gather(2, absorbed.choice)
    return token[absorbed.usable], source[:, None].expand_as(absorbed.usable)[absorbed.usable], weight[absorbed.usable]
