"""Ideas for training-free AVIOT that were tried and not taken, as methods for `benchmarks/free_variants.py`.

PYTHONPATH=benchmarks python benchmarks/free_variants.py run CACHE "free_ideas:Idea(motion=0.5)" --keep 0.1
"""

import torch
from torch.nn.functional import normalize

from aviot.methods import Compressed, TokenMethod, TokenMixture
from aviot.methods.free.geometry import Geometry
from aviot.methods.free.parameters import FreeParameters
from aviot.methods.free.selection import largest, log_gains, log_mass


class Idea(TokenMethod):
    """Training-free AVIOT with changes.

    `cost`: l2, or cosine. `order`: saliency (each token against those farther from the mean), farthest (the farthest
    token from all picked ones is next), facility (the token that lowers the cost of all others most), or none.
    `motion`: exponent of a token's change from the frames before and after. `correction`: share of each kept token that
    is replaced by the mean of the tokens that are nearest to it. `words`: the most similar word of the question instead
    of its mean. `even`: exponent by which each frame's gains are divided by their sum.
    """

    name = "idea"
    uses_question = True
    needs = frozenset({"question_tokens"})

    def __init__(self, cost="l2", order="saliency", motion=0.0, correction=0.0, words=False, even=0.0, **parameters):
        self.cost, self.order, self.motion, self.even = cost, order, motion, even
        self.correction, self.words, self.parameters = correction, words, FreeParameters(**parameters)

    def compress(self, video, *, question, budget):
        """Select, then correct."""
        x, count = video.features.float(), video.limit(budget)
        points = normalize(x, dim=-1) if self.cost == "cosine" else x
        apart, far = torch.cdist(points, points), (points - points.mean(1, keepdim=True)).norm(dim=-1)
        mass = torch.zeros_like(far)
        if question is not None:
            asked = video.extras["question_tokens"] if self.words else question[None]
            cosine = normalize(x - x.mean((0, 1)), dim=-1) @ normalize(asked.float(), dim=-1).T
            mass = log_mass(cosine.amax(-1), self.parameters)
        near = {"saliency": by_saliency, "farthest": by_distance, "facility": by_facility, "none": lambda far, *_: far}
        gains = log_gains(Geometry(far, near[self.order](far, apart, mass.exp()), None), self.parameters) + mass
        if self.motion and len(x) > 1:
            moved = (x[1:] - x[:-1]).norm(dim=-1)
            gains += self.motion * torch.cat((moved[:1], (moved[1:] + moved[:-1]) / 2, moved[-1:])).log()
        if self.even:
            gains -= self.even * gains.logsumexp(1, keepdim=True)
        index = largest(gains, count)
        return corrected(video, index, apart, self.correction) if self.correction else Compressed.kept(video, index)


def by_saliency(far, apart, mass):
    """Return each token's distance to the nearest that is farther from the mean."""
    return apart.masked_fill(far[:, None, :] <= far[:, :, None], torch.inf).amin(2).minimum(far)


def by_distance(far, apart, mass):
    """Return each token's distance to those picked before it, when the one that weighs most is picked next."""
    left, found = far.clone(), torch.zeros_like(far)
    for _ in range(far.shape[1]):
        pick = (mass * left).masked_fill(found > 0, -1).argmax(1, keepdim=True)
        found.scatter_(1, pick, left.gather(1, pick).clamp_min(1e-9))
        left = left.minimum(apart.gather(1, pick[..., None].expand(-1, -1, far.shape[1]))[:, 0])
    return found


def by_facility(far, apart, mass):
    """Return how much each token lowers the cost of its frame, when the one that lowers it most is picked next."""
    left, found = far.clone(), torch.zeros_like(far)
    for _ in range(far.shape[1]):
        saved = torch.einsum("ti,tij->tj", mass, (left[:, :, None] - apart).clamp_min(0))
        best, pick = saved.masked_fill(found > 0, -1).max(1, keepdim=True)
        found.scatter_(1, pick, best.clamp_min(1e-9))
        left = left.minimum(apart.gather(1, pick[..., None].expand(-1, -1, far.shape[1]))[:, 0])
    return found


def corrected(video, index, apart, share):
    """Return kept tokens, each mixed with the mean of the tokens of its frame that are nearest to it."""
    frames, patches = apart.shape[:2]
    kept = torch.zeros(frames * patches, dtype=torch.bool)
    kept[index] = True
    near = apart.masked_fill(~kept.view(frames, 1, patches), torch.inf).argmin(2)
    owner = (near + patches * torch.arange(frames)[:, None]).flatten()
    weights = torch.zeros(len(index), frames * patches)
    number = torch.zeros(frames * patches, dtype=torch.long)
    number[index] = torch.arange(len(index))
    others = (~kept & kept[owner]).nonzero()[:, 0]
    weights[number[owner[others]], others] = 1
    weights *= share / weights.sum(1, keepdim=True).clamp_min(1)
    weights[torch.arange(len(index)), index] = 1 - weights.sum(1)
    values, sources = weights.topk(int((weights > 0).sum(1).max()), dim=1)
    return Compressed.mixed(video, TokenMixture(sources, values, frames, patches))
