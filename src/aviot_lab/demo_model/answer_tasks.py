"""Auxiliary tasks at the tokens of options and answers.

*Options*: at the end of each option, a head predicts whether it is right. To answer with a letter, the decoder has to
find the right option and the letter before it, which no pilot run learned from letters alone (docs/log.md).

*Recall*: where an answer begins and where each option ends, a head predicts the histories of the objects that the
question is about. Every family of questions looks some object up first, and an answer of one word is a weak signal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from aviot_lab.demo_model.histories import HISTORY, UNKNOWN, actor_histories
from aviot_lab.demo_model.masks import answer_spans
from aviot_lab.world import Question, Scene
from aviot_lab.world.grammar import LETTERS

MOST_SUBJECTS = 2  # objects per question whose histories are predicted


@dataclass(frozen=True, eq=False)
class Options:
    """Positions of the options' last tokens, and which options are right. Field names are part of the fingerprint."""

    row: Int[Tensor, "N"]
    place: Int[Tensor, "N"]
    right: Float[Tensor, "N"]


class OptionHead(nn.Module):
    """Auxiliary head, used in training only: predicts from the state at an option's end whether it is right."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, 1)

    def loss(
        self, states: Float[Tensor, "N d"], right: Float[Tensor, "N"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the loss, with equal weight for right and wrong options, and the share of right predictions."""
        logits = self.read(self.norm(states)).float().squeeze(-1)
        weight = torch.where(right > 0, 0.5 / right.mean(), 0.5 / (1 - right.mean()))
        loss = F.binary_cross_entropy_with_logits(logits, right, weight=weight)
        return loss, ((logits > 0) == (right > 0)).float().mean()


class OptionFinder:
    """Finds options in rows of tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        def piece(text: str) -> int:
            return tokenizer(text, add_special_tokens=False)["input_ids"][-1]

        self.newline, self.dot = piece("\n"), piece("A.")
        self.letters = [piece(letter) for letter in LETTERS]

    def find(self, ids: Int[Tensor, "B L"], labels: Int[Tensor, "B L"]) -> Options | None:
        """Return the options of every question that a letter answers; None without such questions."""
        found = [
            (row, place, float(letter == answer))
            for row, (tokens, targets) in enumerate(zip(ids.tolist(), labels.tolist(), strict=True))
            for place, letter, answer in self._options(tokens, targets)
        ]
        if not found:
            return None
        rows, places, right = zip(*found, strict=True)
        return Options(torch.tensor(rows), torch.tensor(places), torch.tensor(right))

    def _options(self, tokens: Sequence[int], targets: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield each option's last position and letter, and the right letter."""
        begin = 0
        for first, end in answer_spans(targets):
            lines = [
                place
                for place in range(begin, first - 2)
                if tokens[place] == self.newline and tokens[place + 1] in self.letters and tokens[place + 2] == self.dot
            ]
            for place in lines:
                yield tokens.index(self.newline, place + 1) - 1, tokens[place + 1], tokens[first]
            begin = end


@dataclass(frozen=True, eq=False)
class RecallTargets:
    """Positions before answers and at the ends of options, and the histories of the question's objects.

    Field names are part of the fingerprint.
    """

    row: Int[Tensor, "N"]
    place: Int[Tensor, "N"]  # of the token before the answer, or of an option's last token
    histories: Int[Tensor, "N objects labels"]


def recall_targets(
    labels: Int[Tensor, "B L"],
    asked: Sequence[tuple[Scene, Sequence[Question | None]]],
    options: Options | None = None,
) -> RecallTargets | None:
    """Return the targets of rows that have an answer per entry of `asked`, which is None for a description.

    Returns None without questions.
    """
    known = {id(scene): actor_histories(scene, range(scene.frames)) for scene, _ in asked}
    ends: dict[int, list[int]] = {row: [] for row in range(len(asked))}
    if options is not None:
        for row, place in zip(options.row.tolist(), options.place.tolist(), strict=True):
            ends[row].append(place)
    targets = []
    for row, (scene, questions) in enumerate(asked):
        begin = 0
        for (first, end), question in zip(answer_spans(labels[row].tolist()), questions, strict=True):
            if question is not None:
                histories = _subject_histories(known[id(scene)], question)
                places = [place for place in ends[row] if begin <= place < first - 1]
                targets += [(row, place, histories) for place in (*places, first - 1)]
            begin = end
    if not targets:
        return None
    rows, positions, labelled = zip(*targets, strict=True)
    return RecallTargets(torch.tensor(rows), torch.tensor(positions), torch.from_numpy(np.stack(labelled)))


def _subject_histories(known: np.ndarray, question: Question) -> np.ndarray:
    """Return the histories of the actors in the evidence, at its end [objects,labels]."""
    ends: dict[int, int] = {}
    for evidence in question.evidence:
        ends[evidence.actor] = max(ends.get(evidence.actor, 0), evidence.stop)
    found = np.full((MOST_SUBJECTS, len(HISTORY)), UNKNOWN, np.int8)
    for number, (actor, end) in enumerate(list(ends.items())[:MOST_SUBJECTS]):
        visible = np.nonzero((known[actor, :end] != UNKNOWN).any(-1))[0]
        found[number] = known[actor, visible[-1]]
    return found
