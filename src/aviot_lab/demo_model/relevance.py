"""Auxiliary losses on relevance: which frames a question is about.

Relevance, by which the compressor allocates supports, is the cosine of a frame's mean with the question's mean
embedding, and no gradient reaches it through the compressor. Names alone (`naming.py`) do not train it, since most of a
question's words name nothing visible. Here the frames that show the question's objects have to be most similar to it,
and segments have to get supports in proportion to such frames: one frame of sixteen hardly moves a segment's mean, and
standardisation magnifies any other difference to the same deviation.
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
from aviot_lab.demo_model.masks import mean_where, question_means, true_runs
from aviot_lab.world import Question, Scene, tracks

SCALE = 20.0  # of cosines in the softmax over frames
LEAST = 1e-3  # standard deviation of the segments' relevance below which gradients grow no further
SPREAD = 0.1  # least difference between the segments' shares; below it, there is nothing to allocate


@dataclass(frozen=True, eq=False)
class QuestionFrames:
    """Questions by their tokens, and the frames that show their objects. Field names are part of the fingerprint."""

    row: Int[Tensor, "N"]
    tokens: Bool[Tensor, "N L"]
    video: Int[Tensor, "N"]
    shown: Bool[Tensor, "N T"]


def question_frames(
    question_mask: Bool[Tensor, "B L"],
    video: Int[Tensor, "B"],
    asked: Sequence[tuple[Scene, Sequence[Question | None]]],
) -> QuestionFrames | None:
    """Return the frames of every question with evidence; None without such questions.

    A row of the mask has one run per entry of `asked`, which is None for a description.
    """
    visible = {id(scene): tracks(scene).visible for scene, _ in asked}
    positions = torch.arange(question_mask.shape[1])
    rows, tokens, shown = [], [], []
    for row, (scene, questions) in enumerate(asked):
        for (first, end), question in zip(true_runs(question_mask[row].tolist()), questions, strict=True):
            if question is not None and question.evidence:
                rows.append(row)
                tokens.append(positions.ge(first) & positions.lt(end))
                actors = sorted({evidence.actor for evidence in question.evidence})
                shown.append(torch.from_numpy(visible[id(scene)][actors].any(0)))
    if not rows:
        return None
    return QuestionFrames(torch.tensor(rows), torch.stack(tokens), video[rows], torch.stack(shown))


def relevance(
    frames: Float[Tensor, "V T d"], embeds: Float[Tensor, "B L d"], asked: QuestionFrames
) -> Float[Tensor, "N T"]:
    """Return each question's cosine with every frame of its video, as the compressor computes it."""
    device = frames.device
    questions = question_means(embeds[to_device(asked.row, device)].float(), to_device(asked.tokens, device))
    return torch.cosine_similarity(frames[to_device(asked.video, device)].float(), questions[:, None], dim=-1)


def relevance_loss(cosines: Float[Tensor, "N T"], asked: QuestionFrames) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the cross-entropy with the frames that show the answer, and how often the most relevant is one of them."""
    shown = to_device(asked.shown, cosines.device)
    loss = F.cross_entropy(SCALE * cosines, shown / shown.sum(1, keepdim=True))
    return loss, shown.gather(1, cosines.argmax(1, keepdim=True)).float().mean()


def allocation_loss(
    cosines: Float[Tensor, "N T"], asked: QuestionFrames, config: CompressorConfig
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the cross-entropy of the compressor's allocation with the segments' shares of the shown frames.

    The second value is the overlap of the two, before rounding. The pilot is left out: a balanced one is the same for
    all segments. Questions whose frames are spread evenly are left out: a standardised signal cannot be even.
    """
    segments = Segments(cosines.shape[1], min(config.segments, cosines.shape[1]))
    shown = to_device(asked.shown, cosines.device).float()
    shares = segments.split((shown / shown.sum(1, keepdim=True))[..., None]).sum((-2, -1))
    uneven = shares.amax(1) - shares.amin(1) > SPREAD
    signal = segments.mean(cosines)
    weight, temperature = config.allocation.relevance_weight, config.allocation.final_temperature
    centred = signal - signal.mean(1, keepdim=True)
    deviation = centred.square().mean(1, keepdim=True).clamp_min(LEAST**2).sqrt()  # its gradient is always finite
    each = F.cross_entropy(weight / temperature * centred / deviation, shares, reduction="none")
    with torch.no_grad():
        allocated = allocation_probabilities(torch.zeros_like(signal), signal, weight, temperature)
        overlap = torch.minimum(allocated, shares).sum(1)
    return mean_where(each, uneven), mean_where(overlap, uneven)
