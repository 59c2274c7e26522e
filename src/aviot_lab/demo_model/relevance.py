"""Which frames a question is about, told by the likeness that allots supports.

Relevance is the cosine of a frame's mean with the question's mean embedding, and no gradient reaches it through the
compressor. Names alone (`naming.py`) do not make it: most of a question's words say nothing of what is to be seen. Here
the frames that show whom a question is about have to be those most like it, and segments have to get supports as they
show it: what stands out in one frame of sixteen is lost in a segment's mean, where anything else that differs is
magnified to the same deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from aviot.config import CompressorConfig
from aviot.methods.aviot.allocation import allocation_probabilities
from aviot.methods.aviot.segments import Segments
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.means import mean_where
from aviot_lab.demo_model.spans import stretches
from aviot_lab.world import Question, Scene, tracks

SCALE = 20.0  # of a cosine, before frames compete
LEAST = 1e-3  # deviation of the segments' relevance; the gradient grows no further where it is less
SPREAD = 0.1  # between what segments show at most and at least; where it is less, there is nothing to allot


@dataclass(frozen=True, eq=False)
class Sought:
    """Questions by their tokens, and the frames that show whom they are about."""

    row: Int[Tensor, "N"]
    tokens: Bool[Tensor, "N L"]
    video: Int[Tensor, "N"]
    shown: Bool[Tensor, "N T"]


def sought_of(
    asks: Bool[Tensor, "B L"], video: Int[Tensor, "B"], asked: Sequence[tuple[Scene, Sequence[Question | None]]]
) -> Sought | None:
    """Of rows with a stretch of `asks` for each of `asked`, None where it is no question.

    What was not there is in no frame; None if nothing is sought.
    """
    visible = {id(scene): tracks(scene).visible for scene, _ in asked}
    rows, tokens, shown = [], [], []
    for row, (scene, questions) in enumerate(asked):
        for (first, end), question in zip(stretches(asks[row].tolist()), questions, strict=True):
            if question is not None and question.evidence:
                rows.append(row)
                tokens.append(torch.arange(asks.shape[1]).ge(first) & torch.arange(asks.shape[1]).lt(end))
                actors = sorted({evidence.actor for evidence in question.evidence})
                shown.append(torch.from_numpy(visible[id(scene)][actors].any(0)))
    if not rows:
        return None
    return Sought(torch.tensor(rows), torch.stack(tokens), video[rows], torch.stack(shown))


def relevance(frames: Float[Tensor, "V T d"], embeds: Float[Tensor, "B L d"], sought: Sought) -> Float[Tensor, "N T"]:
    """Each question's cosine to every frame of its video, as the compressor hears it."""
    device = frames.device
    questions = question_means(embeds[to_device(sought.row, device)].float(), to_device(sought.tokens, device))
    return torch.cosine_similarity(frames[to_device(sought.video, device)].float(), questions[:, None], dim=-1)


def question_means(embeds: Float[Tensor, "B L d"], asks: Bool[Tensor, "B L"]) -> Float[Tensor, "B d"]:
    """The mean embedding of each row's tokens that ask."""
    weights = asks[..., None].to(embeds.dtype)
    return (embeds * weights).sum(1) / weights.sum(1).clamp_min(1)


def relevance_loss(found: Float[Tensor, "N T"], sought: Sought) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Frames compete for each question, those that show it are alike; and how often one of them wins."""
    shown = to_device(sought.shown, found.device)
    loss = F.cross_entropy(SCALE * found, shown / shown.sum(1, keepdim=True))
    return loss, shown.gather(1, found.argmax(1, keepdim=True)).float().mean()


def allotment_loss(
    found: Float[Tensor, "N T"], sought: Sought, config: CompressorConfig
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Segments compete for supports as the compressor lets them, and are to get as many as they show of what is sought.

    And what the allotment, before it is rounded, has in common with that. The pilot has no say: a balanced one finds
    all segments alike. Questions about what all segments show alike are left out: a standardised signal cannot treat
    all alike.
    """
    segments = Segments(found.shape[1], min(config.segments, found.shape[1]))
    shown = to_device(sought.shown, found.device).float()
    goal = segments.split((shown / shown.sum(1, keepdim=True))[..., None]).sum((-2, -1))
    counts = goal.amax(1) - goal.amin(1) > SPREAD
    signal = segments.mean(found)
    weight, temperature = config.allocation.relevance_weight, config.allocation.final_temperature
    centred = signal - signal.mean(1, keepdim=True)
    deviation = centred.square().mean(1, keepdim=True).clamp_min(LEAST**2).sqrt()  # whose gradient is always finite
    each = F.cross_entropy(weight / temperature * centred / deviation, goal, reduction="none")
    with torch.no_grad():
        given = allocation_probabilities(torch.zeros_like(signal), signal, weight, temperature)
        right = torch.minimum(given, goal).sum(1)
    return mean_where(each, counts), mean_where(right, counts)
