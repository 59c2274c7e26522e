"""Prompts built a second time, from what the families' layouts say: groups of tokens, texts and positions."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import adaptive_avg_pool2d

from aviot.methods import Compressed, TokenMethod, TokenMixture

ROTARY = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5")
IN_TEXT = ("qwen3-vl", "qwen3-vl-moe", "qwen3.5")


class RandomTokens(TokenMethod):
    """Keep single tokens drawn at random, in random order."""

    name = "random-tokens"

    def compress(self, video, *, question, budget):
        """Draw indices by a seed."""
        return Compressed.kept(video, drawn(video.frames * video.patches, video.limit(budget)))


SHARE = 0.75  # of the earlier frame in a merged token


class Merged(TokenMethod):
    """Merge every other token of an even frame with that of the next frame; keep the others of even frames."""

    name = "merged"

    def compress(self, video, *, question, budget):
        """List the sources and weights of each token."""
        first = torch.arange(0, video.frames - 1, 2)[:, None] * video.patches + torch.arange(video.patches)
        weights = torch.tensor([[1.0, 0.0], [SHARE, 1 - SHARE]])[torch.arange(video.patches) % 2]
        sources = torch.stack((first, first + video.patches), -1).flatten(0, 1)
        mixture = TokenMixture(sources, weights.repeat(len(first), 1), video.frames, video.patches)
        return Compressed.mixed(video, mixture)


def merged_groups(encoded):
    """Return the groups of `Merged`; the text has one time for a group, positions have each token's own."""
    groups, (rows, columns) = [], encoded.grid
    for frame in range(0, len(encoded.times) - 1, 2):
        pair = encoded.times[frame : frame + 2]
        here = [pair[0], SHARE * pair[0] + (1 - SHARE) * pair[1]]
        own = [round(here[patch % 2], 6) for patch in range(rows * columns)]
        odd = (torch.arange(rows * columns) % 2).bool()[:, None]
        vectors = {
            layer: torch.where(odd, SHARE * one[frame] + (1 - SHARE) * one[frame + 1], one[frame]).double()
            for layer, one in {"": encoded.features.double(), **encoded.extras}.items()
        }
        group = _group(round(float(np.mean(own)), 6), [divmod(n, columns) for n in range(rows * columns)], vectors)
        group.own = own
        groups.append(group)
    return groups


def drawn(total, count):
    return torch.randperm(total, generator=torch.Generator().manual_seed(5))[:count]


@dataclass
class Group:
    """The tokens of one time: their rows and columns, vectors in float64, and those of deeper layers."""

    time: float
    cells: list
    tokens: torch.Tensor
    deeper: dict = field(default_factory=dict)
    own: list = field(default_factory=list)  # each token's time, if they differ


def groups_of(name, encoded, keep, made, separators=0):
    """Return the groups of tokens that a method makes of an encoded video; AVIOT's from its own coefficients.

    `separators` is the number of those that the layout adds to a whole video.
    """
    frames, patches = encoded.features.shape[:2]
    times = np.array(encoded.times)
    sources = {"": encoded.features, **encoded.extras}
    sources = {layer: one.double() for layer, one in sources.items()}
    columns = encoded.grid[1]
    if name in ("random-tokens", "none"):
        total = frames * patches
        count = -(-total // round(1 / keep)) - separators  # a budget counts them, too
        kept = sorted(drawn(total, count)) if name == "random-tokens" else range(total)
        kept = [divmod(int(one), patches) for one in kept]
        return [
            _group(
                time,
                [divmod(patch, columns) for frame, patch in kept if frame == number],
                {layer: torch.stack([one[f, p] for f, p in kept if f == number]) for layer, one in sources.items()},
            )
            for number, time in enumerate(times)
            if any(frame == number for frame, _ in kept)
        ]
    if name == "low-resolution":
        return _pooled(sources, encoded.grid, times, made)
    weights = _weights(name, frames, max(1, -(-frames // round(1 / keep))), made)
    cells = [divmod(patch, columns) for patch in range(patches)]
    mixed = {layer: torch.einsum("kst,tsd->ksd", weights, one) for layer, one in sources.items()}
    means = [
        float(times[int(share.argmax())] if share.max() == 1 else round(float(share @ torch.tensor(times)), 6))
        for share in weights.mean(1)
    ]
    return [_group(mean, cells, {layer: one[k] for layer, one in mixed.items()}) for k, mean in enumerate(means)]


def _group(time, cells, vectors):
    tokens = vectors.pop("")
    return Group(float(time), cells, tokens, vectors)


def _weights(name, frames, supports, made):
    """Return the weight of every frame in every support, for each patch, [K,S,T]."""
    if name == "aviot":
        return made.compression.provenance().coefficients.double()
    patches = made.grid[0] * made.grid[1]
    weights = torch.zeros(supports, frames, dtype=torch.float64)
    if name == "segment-mean":
        for k, part in enumerate(np.array_split(np.arange(frames), supports)):
            weights[k, part] = 1 / len(part)
    elif name == "uniform":
        weights[range(supports), torch.linspace(0, frames - 1, supports).round().long()] = 1
    else:
        order = torch.rand(1, frames, generator=torch.Generator().manual_seed(0)).argsort()[0, :supports]
        weights[range(supports), order.sort().values] = 1
    return weights[:, None].expand(-1, patches, -1)


def _pooled(sources, grid, times, made):
    """Return every frame on a smaller grid, whose size the method chooses."""
    at = made.positions
    size = (len(at[:, 1].unique()), len(at[:, 2].unique()))
    frames = len(made) // (size[0] * size[1])
    chosen = torch.linspace(0, len(times) - 1, frames).round().long().tolist()
    places = torch.stack(torch.meshgrid(*(torch.arange(n).double() for n in grid), indexing="ij"))
    cells = adaptive_avg_pool2d(places, size).flatten(1).T.tolist()
    pooled = {
        layer: adaptive_avg_pool2d(one.mT.unflatten(-1, grid), size).flatten(2).mT for layer, one in sources.items()
    }
    return [_group(times[frame], cells, {layer: one[frame] for layer, one in pooled.items()}) for frame in chosen]


def prompt_text(family, groups, video, question, token):
    """Return the text of a whole prompt, with every visual token spelled out."""
    pads = [token * len(group.cells) for group in groups]
    times = [group.time for group in groups]
    if family in IN_TEXT:
        parts = [f"<{t:.1f} seconds><|vision_start|>{p}<|vision_end|>" for t, p in zip(times, pads, strict=True)]
        video_text = f"<|vision_start|>{''.join(parts)}<|vision_end|>"
    elif family in ROTARY:
        video_text = f"<|vision_start|>{''.join(pads)}<|vision_end|>"
    elif family == "llava-onevision":
        video_text = "".join(pads) + token
    elif family == "internvl":
        nearest = [min(range(len(video.times)), key=lambda i: (round(abs(video.times[i] - t), 3), i)) for t in times]
        video_text = "\n".join(f"Frame{n + 1}: <img>{p}</img>" for n, p in zip(nearest, pads, strict=True))
    elif family == "video-llama3":
        video_text = ",".join(f"Time {t:.1f}s:{p}" for t, p in zip(times, pads, strict=True))
    else:
        return _smolvlm_text(times, pads, video, question)
    return f"<|im_start|>user\n{video_text}{question}<|im_end|>\n<|im_start|>assistant\n"


def _smolvlm_text(times, pads, video, question):
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    seconds = int(video.duration)
    text = f"You are provided the following series of {words[len(times)]} frames from a "
    text += f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} [H:MM:SS] video.\n"
    for time, pad in zip(times, pads, strict=True):
        minutes, rest = divmod(int(time + 1e-6), 60)
        around = "<fake_token_around_image>"
        text += f"\nFrame from {minutes:02d}:{rest:02d}:{around}<global-img>{pad}{around}"
    return f"<|im_start|>User: {text}\n\n{question}<end_of_utterance>\nAssistant:"


def positions(family, ids, token_id, groups, encoded, video, per_second):
    """Return positions on three axes, one token after another."""
    visual = [
        (time, *cell)
        for group in groups
        for time, cell in zip(group.own or [group.time] * len(group.cells), group.cells, strict=True)
    ]  # in the order of the placeholders
    ends = np.cumsum([len(group.cells) for group in groups]).tolist() if family in IN_TEXT else [len(visual)]
    found, here, used = [], 0, 0
    for number in ids.tolist():
        if number != token_id:
            found.append((here, here, here))
            here += 1
            continue
        time, row, column = visual[used]
        tick = 0 if family in IN_TEXT else _tick(family, time, encoded, video, per_second)
        found.append((here + tick, here + round(row), here + round(column)))
        used += 1
        if used in ends:
            here += max(encoded.grid)
    return torch.tensor(found).T


def _tick(family, time, encoded, video, per_second):
    """Return a temporal position: pairs of frames are numbered, or at the time of their first frame."""
    firsts = np.array(video.times[::2])
    axis = np.arange(len(firsts)) if family == "qwen2-vl" else (firsts - firsts[0]) * per_second
    return int(np.interp(time, encoded.times, axis) + 1e-4)
