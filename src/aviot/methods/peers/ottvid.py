"""OTT-Vid: tokens that cover their frame, then merged into earlier frames along optimal transport plans."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import ParameterizedMethod
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.groups import TokenGroups
from aviot.methods.peers.ottvid_cover import covering_tokens, known_saliency, token_mass
from aviot.methods.peers.ottvid_transport import removal_counts, transport


@dataclass(frozen=True, kw_only=True)
class OttVidParameters:
    """The method's parameters; the defaults are the paper's.

    `retention` r is the share of all tokens that stays. Of its logarithm, `temporal_share` falls to the merging and the
    rest to the selection in each frame, which keeps the share r^(1 - temporal_share) unless `spatial_retention` is
    given. `cost_threshold` drops a match that costs more, `mass_temperature` weighs tokens by what they cover; None
    switches either off. `program` is the one that is followed where the authors' two differ, and `cost_grid` the rows
    and columns by which pairs' distances are computed (default: the true ones). The LLaVA program always assumes 13x13,
    which is wrong for LLaVA-OneVision's 14x14.
    """

    retention: float = 0.1
    temporal_share: float = 0.3
    spatial_retention: float | None = None
    mass_temperature: float | None = 0.3
    budget_temperature: float = 0.3
    cost_threshold: float | None = 0.3
    epsilon: float = 0.01
    iterations: int = 200
    program: Literal["llava", "qwen"] = "qwen"
    cost_grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.program not in ("llava", "qwen"):
            raise ValueError(f"program must be 'llava' or 'qwen', got {self.program!r}")
        if not 0 < self.retention <= 1:
            raise ValueError(f"retention must be a share above 0 and at most 1, got {self.retention!r}")

    def kept_per_frame(self, patches: int) -> int:
        """Return K, the number of tokens that the selection keeps in each frame."""
        share = self._spatial
        if share >= 1:
            return patches
        return max(1, round(patches * share) if self.program == "llava" else math.floor(patches * share))

    def removed(self, frames: int, patches: int, kept: int) -> int:
        """Return the number of tokens that the merging removes from `kept` in each frame."""
        if self.program == "llava":
            left = max(1, round(frames * kept * self.retention / max(self._spatial, 1e-6)))
        else:
            left = round(frames * patches * self.retention)
        return max(0, frames * kept - left)

    @property
    def _spatial(self) -> float:
        if self.spatial_retention is not None:
            return self.spatial_retention
        return self.retention ** (1 - self.temporal_share)


PUBLISHED = OttVidParameters()


@dataclass(frozen=True, eq=False)
class OttVidResult:
    """The tokens that stay: `indices` of the tokens into which others were merged, and the groups behind them.

    `spatial_keep` has each frame's patches after the first stage, `temporal_ranges` the first and last frame of each
    group.
    """

    spatial_keep: Int[Tensor, "T K"]
    indices: Int[Tensor, "n"]
    groups: TokenGroups
    temporal_ranges: Int[Tensor, "n 2"]


def ottvid(
    features: Float[Tensor, "T N D"],
    saliency: Float[Tensor, "T N"],
    grid: tuple[int, int],
    parameters: OttVidParameters = PUBLISHED,
) -> OttVidResult:
    """Compress a video to the share of its tokens that the parameters name."""
    frames, patches, _ = features.shape
    kept = parameters.kept_per_frame(patches)
    return compress_to(features, saliency, grid, (kept, parameters.removed(frames, patches, kept)), parameters)


def compress_to(
    features: Float[Tensor, "T N D"],
    saliency: Float[Tensor, "T N"],
    grid: tuple[int, int],
    counts: tuple[int, int],
    parameters: OttVidParameters,
) -> OttVidResult:
    """Keep the first of two counts in each frame, then remove the second from the whole video by merging."""
    kept, removed = counts
    frames, patches, _ = features.shape
    device = features.device
    mass, spatial, likeness = select_and_weigh(features, saliency.float(), kept, parameters)
    own = torch.arange(frames, device=device)[:, None] * patches + spatial
    absorbed = torch.arange(frames * kept, device=device)  # the token of the previous frame that takes each one in
    dropped = torch.zeros(frames * kept, dtype=torch.bool, device=device)
    if frames > 1 and removed > 0:
        tokens = normalize(features.flatten(0, 1)[own].float(), dim=-1, eps=1e-12)
        place = patch_places(spatial, parameters.cost_grid or grid)
        matches = match_pairs(tokens, place, likeness, mass, parameters)
        absorbed, dropped = edges(matches, removed, parameters)
    return _merged(own, spatial, absorbed, dropped)


def select_and_weigh(
    features: Float[Tensor, "T N D"], saliency: Float[Tensor, "T N"], kept: int, parameters: OttVidParameters
) -> tuple[Float[Tensor, "T K"], Int[Tensor, "T K"], Float[Tensor, "T-1"]]:
    """Return the mass of the tokens that the selection keeps, these, and the likeness of neighbouring frames."""
    frames, patches, _ = features.shape
    step = chunk_size(patches**2)
    masses, picks, likeness = [], [], []
    for start in range(0, frames, step):  # one frame more than needed, for the likeness to the next one
        unit = normalize(features[start : start + step + 1].float(), dim=-1, eps=1e-12)
        likeness.append((unit[:-1] * unit[1:]).sum(-1).mean(-1))
        unit, own = unit[:step], saliency[start : start + step]
        similarity = unit @ unit.mT
        spatial = covering_tokens(similarity, own / (own.sum(1, keepdim=True) + 1e-8), kept)
        known = own if parameters.program == "qwen" else known_saliency(own, spatial)
        reach = similarity.gather(2, spatial[:, None, :].expand(-1, patches, -1))
        masses.append(token_mass(reach, known / (known.sum(1, keepdim=True) + 1e-8), parameters.mass_temperature))
        picks.append(spatial)
    return torch.cat(masses), torch.cat(picks), torch.cat(likeness)


def patch_places(patches: Int[Tensor, "T K"], grid: tuple[int, int]) -> Float[Tensor, "T K 2"]:
    """Return rows and columns over the grid's extent."""
    rows, columns = grid
    row, column = torch.div(patches, columns, rounding_mode="floor"), patches % columns
    return torch.stack((row / max(rows - 1, 1), column / max(columns - 1, 1)), -1)


@dataclass(frozen=True, eq=False)
class PairMatches:
    """The best match of each kept token in the frame before: how much is transported, from which token, at what cost.

    `work` is the total cost of each pair's plan.
    """

    amount: Float[Tensor, "T-1 K"]
    origin: Int[Tensor, "T-1 K"]
    cost: Float[Tensor, "T-1 K"]
    work: Float[Tensor, "T-1"]


def match_pairs(
    tokens: Float[Tensor, "T K D"],
    place: Float[Tensor, "T K 2"],
    likeness: Float[Tensor, "T-1"],
    mass: Float[Tensor, "T K"],
    parameters: OttVidParameters,
) -> PairMatches:
    """Transport each frame's mass onto the next frame's, and find the largest entry in every column of the plans.

    The cost mixes distance in features and in the frame; the more two frames differ, the less the place counts.
    """
    share = 0.5 + 0.5 * (1 - likeness).clamp(0, 1)
    step = chunk_size(mass.shape[1] ** 2)
    amounts, origins, costs, works = [], [], [], []
    for start in range(0, len(likeness), step):
        end = min(start + step, len(likeness))
        before, after = slice(start, end), slice(start + 1, end + 1)
        apart = 1 - (tokens[before] @ tokens[after].mT).clamp(min=0)
        distance = (place[before, :, None] - place[after, None, :]).square().sum(-1).sqrt() / math.sqrt(2)
        mixed = share[before, None, None]
        cost = mixed * apart + (1 - mixed) * distance
        plan = transport(cost, mass[before], mass[after], parameters.epsilon, parameters.iterations)
        amount, origin = plan.max(1)
        amounts.append(amount)
        origins.append(origin)
        costs.append(cost.gather(1, origin[:, None])[:, 0])
        works.append((plan * cost).sum((1, 2)))
    return PairMatches(torch.cat(amounts), torch.cat(origins), torch.cat(costs), torch.cat(works))


def edges(
    matches: PairMatches, removed: int, parameters: OttVidParameters
) -> tuple[Int[Tensor, "T*K"], Bool[Tensor, "T*K"]]:
    """Return the kept token that absorbs each one (itself if none does), and which matches were too dear.

    In each pair of frames the columns with the largest entries of the plan are matched, as many as the pair is to
    remove. A row can be matched several times.
    """
    pairs, kept = matches.amount.shape
    device = matches.amount.device
    counts = removal_counts(matches.work.cpu(), kept - 1, removed, parameters.budget_temperature).to(device)
    order = torch.argsort(matches.amount, dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(1, order, torch.arange(kept, device=device).expand_as(order))
    matched = ranks < counts[:, None]
    dear = torch.zeros_like(matched)
    if parameters.cost_threshold is not None:
        dear = matched & (matches.cost > parameters.cost_threshold)
    itself = torch.arange((pairs + 1) * kept, device=device).view(-1, kept)
    origin = torch.arange(pairs, device=device)[:, None] * kept + matches.origin
    absorbed = torch.cat((itself[:1], torch.where(matched & ~dear, origin, itself[1:])))
    return absorbed.flatten(), torch.cat((torch.zeros_like(dear[:1]), dear)).flatten()


def _merged(
    own: Int[Tensor, "T K"], spatial: Int[Tensor, "T K"], absorbed: Int[Tensor, "T*K"], dropped: Bool[Tensor, "T*K"]
) -> OttVidResult:
    """Follow matches back to the first token of each chain, and group what survives by it."""
    frames, kept = own.shape
    root = absorbed
    for _ in range(max(frames - 1, 1).bit_length()):  # doubles the steps that are followed, up to T - 1
        root = root[root]
    every = torch.arange(frames * kept, device=own.device)
    survives = ~dropped[root]
    first = (root == every) & survives
    number = first.cumsum(0) - 1
    members = every[survives]
    roots, labels = every[first], number[root[survives]]
    frame = torch.div(members, kept, rounding_mode="floor")
    low = torch.full_like(roots, frames).scatter_reduce_(0, labels, frame, "amin")
    high = torch.zeros_like(roots).scatter_reduce_(0, labels, frame, "amax")
    flat = own.flatten()
    groups = TokenGroups(flat[members], labels, len(roots))
    return OttVidResult(spatial, flat[roots], groups, torch.stack((low, high), 1))


class OttVid(ParameterizedMethod[OttVidParameters]):
    """OTT-Vid (arXiv 2605.11803): facility location in each frame, then merging along optimal transport plans.

    Each frame keeps the tokens that best cover it, weighted by the encoder's attention. Neighbouring frames' tokens are
    matched by entropic optimal transport, and the cheapest pairs of frames merge the most: a token is averaged into its
    match in the earlier frame, or dropped where even the best match is dear. "Retention" in the paper is the share of
    all video tokens that enters the decoder; nothing is pruned inside it.

    Followed is the authors' program for Qwen2.5-VL, which knows the true grid and every token's attention; their
    program for LLaVA assumes a grid of 13x13 whatever the model (`OttVidParameters.program` and `cost_grid`). Where
    code and docstrings of the original differ, the code is followed: matches are ranked by the plan itself, not per
    unit of mass, and merged tokens are plain means. A merged token stands at its members' mean position, in the order
    of the tokens that they were merged into.

    The budget gives the retention exactly. At least one token per frame must stay, otherwise ValueError; close to that,
    and for a single frame, which has nothing to merge with, the selection keeps fewer tokens than the published rule,
    since merging leaves each frame at least one.
    """

    name = "ottvid"
    title = "OTT-Vid"
    needs = frozenset({"attention"})
    replayable = False  # pairs share out their removals in a loop of unknown length

    def __init__(self, parameters: OttVidParameters = PUBLISHED) -> None:
        super().__init__(parameters)

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Choose the counts of both stages by the limit."""
        frames, patches = video.frames, video.patches
        self.refuse_below(frames, video, limit, "every frame keeps a token")
        own = replace(self.parameters, retention=limit / (frames * patches))
        kept = min(own.kept_per_frame(patches), limit - frames + 1)
        counts = kept, max(0, frames * kept - limit)
        result = compress_to(video.features, video.extras["attention"], video.grid, counts, own)
        return result.groups.compressed(video)
