"""Greedy answers and their probabilities from a few passes over whole prompts, instead of one token at a time.

Each pass reads a guess of the whole answer. Predictions are those of greedy decoding as far as the guess is, and one
token beyond; they are the next pass's guess. With the right answer as the first guess, one pass is enough wherever the
model gives it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from aviot.engine.base import Generated
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.batches import ConversationBatch
from aviot_lab.demo_model.learning import Sequences, next_logits
from aviot_lab.demo_model.masks import answer_spans

LONGEST_ANSWER = 12
"""Most tokens of an answer; a right one has at most three."""


@dataclass(frozen=True)
class Decoded:
    """A greedy answer, and whether it is the expected one."""

    answer: Generated
    right: bool


@torch.no_grad()
def decode(model: Any, sequences: Sequences, batch: ConversationBatch, tokenizer: Any) -> list[Decoded]:
    """Return the greedy answer to each prompt of a batch, whose rows have one answer each."""
    ends = _ends(model)
    starts, expected = zip(*(_expected(labels) for labels in batch.labels.tolist()), strict=True)
    ids = to_device(F.pad(batch.ids, (0, LONGEST_ANSWER)), model.device)
    embed = model.get_input_embeddings()
    going, found = list(range(len(starts))), dict[int, Decoded]()
    for _ in range(LONGEST_ANSWER + 1):
        after = embed(ids[going]).to(sequences.tokens.dtype)
        logits = next_logits(model, Sequences(sequences.before[going], sequences.tokens[going], after))
        where = _answer_places([starts[row] for row in going], model.device)
        logits = logits.gather(1, (where - 1)[..., None].expand(-1, -1, logits.shape[-1]))
        if not torch.isfinite(logits).all():
            raise ValueError("the decoder's logits are not finite (NaN or infinity); check the weights")
        largest, predicted = (logits.amax(-1) - logits.logsumexp(-1)).exp(), logits.argmax(-1)
        guessed = ids[going].gather(1, where)
        ids[going] = ids[going].scatter(1, where, predicted)
        lengths = [_length(*pair, ends) for pair in zip(guessed.tolist(), predicted.tolist(), strict=True)]
        tokens, scores = predicted.tolist(), largest.tolist()
        for place, (row, length) in enumerate(zip(going, lengths, strict=True)):
            if length is not None:
                own = [token for token in tokens[place][:length] if token not in ends]
                text = tokenizer.decode(own, skip_special_tokens=True).strip()
                right = tokens[place][: len(expected[row])] == expected[row]
                found[row] = Decoded(Generated(text, tuple(scores[place][: len(own)])), right)
        going = [row for row in going if row not in found]
        if not going:
            break
    return [found[row] for row in range(len(starts))]


def _expected(labels: Sequence[int]) -> tuple[int, list[int]]:
    """Return the position of a row's answer, and its tokens with the end token."""
    ((start, end),) = answer_spans(labels)
    return start, list(labels[start:end])


def _answer_places(starts: Sequence[int], device: torch.device) -> Int[Tensor, "B n"]:
    """Return the positions of each row's answer."""
    return to_device(torch.tensor(starts)[:, None] + torch.arange(LONGEST_ANSWER), device)


def _length(guess: Sequence[int], predicted: Sequence[int], ends: frozenset[int]) -> int | None:
    """Return the number of tokens of an answer, end token included; None while a guess before its end was wrong."""
    for place, (mine, next_token) in enumerate(zip(guess, predicted, strict=True)):
        if next_token in ends:
            return place + 1
        if mine != next_token and place + 1 < len(guess):
            return None
    return len(predicted)


def _ends(model: Any) -> frozenset[int]:
    ends = model.generation_config.eos_token_id
    return frozenset(ends if isinstance(ends, list) else [ends])
