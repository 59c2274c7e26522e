"""The question itself within a text that also has options and instructions, and its tokens."""

import re
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# The first option after a question: a line that begins with "A." or "(A)" or "A)" or "A:", or the same with 1.
_OPTIONS = re.compile(r"\s*\n\s*(?:(?:options|choices)\s*:\s*)?\(?[Aa1][.):]\s.*", re.DOTALL | re.IGNORECASE)


def without_options(text: str) -> str:
    """Return a question without the lettered options after it; the whole text if nothing else is in it."""
    return _OPTIONS.sub("", text, count=1).strip() or text.strip()


@torch.inference_mode()
def question_tokens(
    tokenizer: Any, embed: Callable[[Tensor], Tensor], question: str, span: tuple[int, int]
) -> Float[Tensor, "L d"] | None:
    """Return the input embeddings of a question's own tokens; None if it has none.

    The question is tokenized alone: its span without options, and without special tokens. `embed` maps token ids, on
    the CPU, to embeddings.
    """
    alone = without_options(question[slice(*span)])
    special = set(tokenizer.all_special_ids)
    ids = [number for number in tokenizer(alone, add_special_tokens=False)["input_ids"] if number not in special]
    return embed(torch.tensor(ids)) if ids else None
