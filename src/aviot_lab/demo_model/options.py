"""Which of a question's options is right, told by the decoder at the end of each.

To name a letter one has to find the option that is the answer, and the letter before it. No pilot learnt this from
letters alone (docs/log.md); here every option says for itself whether it is right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from aviot_lab.demo_model.spans import answer_spans
from aviot_lab.world.grammar import LETTERS


@dataclass(frozen=True, eq=False)
class Options:
    """Where options end, and whether they are right."""

    row: Int[Tensor, "N"]
    place: Int[Tensor, "N"]
    right: Float[Tensor, "N"]


class OptionReader(nn.Module):
    """Reads off the decoder's state at an option's end whether it is right. It is thrown away after the lesson."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, 1)

    def loss(
        self, states: Float[Tensor, "N d"], right: Float[Tensor, "N"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Right and wrong options weigh the same; and the share that would be told apart."""
        guess = self.read(self.norm(states)).float().squeeze(-1)
        weight = torch.where(right > 0, 0.5 / right.mean(), 0.5 / (1 - right.mean()))
        loss = F.binary_cross_entropy_with_logits(guess, right, weight=weight)
        return loss, ((guess > 0) == (right > 0)).float().mean()


class OptionFinder:
    """Finds the lines of options in rows of tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        def piece(text: str) -> int:
            return tokenizer(text, add_special_tokens=False)["input_ids"][-1]

        self.line, self.dot = piece("\n"), piece("A.")
        self.letters = [piece(letter) for letter in LETTERS]

    def find(self, ids: Int[Tensor, "B L"], labels: Int[Tensor, "B L"]) -> Options | None:
        """Those of every question that a letter answers; None if there are none."""
        found = [
            (row, place, float(letter == answer))
            for row, (said, goal) in enumerate(zip(ids.tolist(), labels.tolist(), strict=True))
            for place, letter, answer in self._options(said, goal)
        ]
        if not found:
            return None
        rows, places, right = zip(*found, strict=True)
        return Options(torch.tensor(rows), torch.tensor(places), torch.tensor(right))

    def _options(self, said: Sequence[int], goal: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Each option's last place and letter, and the letter that is right."""
        begin = 0
        for first, end in answer_spans(goal):
            lines = [
                place
                for place in range(begin, first - 2)
                if said[place] == self.line and said[place + 1] in self.letters and said[place + 2] == self.dot
            ]
            for place in lines:
                yield said.index(self.line, place + 1) - 1, said[place + 1], said[first]
            begin = end
