"""Whom a question is about, and what they had done: told by the decoder where its answer begins, and by every option.

Every family of questions looks someone up first, and an answer of one word is little to learn that from. Here all that
is known of those who are looked up has to be told, also where an option ends, which is compared with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from aviot_lab.demo_model.histories import HISTORY, UNKNOWN, actor_histories
from aviot_lab.demo_model.options import Options
from aviot_lab.demo_model.spans import answer_spans
from aviot_lab.world import Question, Scene

ASKED_AFTER = 2  # objects at most


@dataclass(frozen=True, eq=False)
class Recalls:
    """Where answers to questions begin and their options end, and the histories that they need."""

    row: Int[Tensor, "N"]
    place: Int[Tensor, "N"]  # of the token that the answer follows, or of an option's last
    histories: Int[Tensor, "N objects labels"]


def recalls_of(
    labels: Int[Tensor, "B L"],
    asked: Sequence[tuple[Scene, Sequence[Question | None]]],
    options: Options | None = None,
) -> Recalls | None:
    """Of rows with an answer for each of `asked`, None where it is to no question; None if none of them is."""
    known = {id(scene): actor_histories(scene, range(scene.frames)) for scene, _ in asked}
    ends: dict[int, list[int]] = {row: [] for row in range(len(asked))}
    if options is not None:
        for row, place in zip(options.row.tolist(), options.place.tolist(), strict=True):
            ends[row].append(place)
    found = []
    for row, (scene, questions) in enumerate(asked):
        begin = 0
        for (first, end), question in zip(answer_spans(labels[row].tolist()), questions, strict=True):
            if question is not None:
                needed = _looked_up(known[id(scene)], question)
                places = [place for place in ends[row] if begin <= place < first - 1]
                found += [(row, place, needed) for place in (*places, first - 1)]
            begin = end
    if not found:
        return None
    rows, places, histories = zip(*found, strict=True)
    return Recalls(torch.tensor(rows), torch.tensor(places), torch.from_numpy(np.stack(histories)))


def _looked_up(known: np.ndarray, question: Question) -> np.ndarray:
    """The histories of those whom the evidence names, at the end of it [objects,labels]."""
    ends: dict[int, int] = {}
    for evidence in question.evidence:
        ends[evidence.actor] = max(ends.get(evidence.actor, 0), evidence.stop)
    found = np.full((ASKED_AFTER, len(HISTORY)), UNKNOWN, np.int8)
    for number, (actor, end) in enumerate(list(ends.items())[:ASKED_AFTER]):
        seen = np.nonzero((known[actor, :end] != UNKNOWN).any(-1))[0]
        found[number] = known[actor, seen[-1]]
    return found
