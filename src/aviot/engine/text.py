"""The text of an answer while its tokens are decoded one by one."""

from collections.abc import Sequence
from typing import Any

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer writes for the first bytes of a character
CONTEXT = 4
"""Tokens before the new ones that are decoded again: the text of a token may depend on those just before it."""


class AnswerText:
    """The tokens of an answer so far; the joined results of `add` are the text of all tokens decoded together."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.tokens: list[int] = []
        self._start = self._done = 0  # of the tokens that are decoded again, and of those whose text has not left

    def add(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """Append tokens; return the text that they complete: nothing in the middle of a character, except at the end.

        Special tokens, such as that of the end, have no text.
        """
        self.tokens.extend(tokens)
        before = self._text(self.tokens[self._start : self._done])
        text = self._text(self.tokens[self._start :])
        if len(text) <= len(before) or (text.endswith(INCOMPLETE) and not last):
            return ""
        self._start, self._done = max(self._start, self._done - CONTEXT), len(self.tokens)
        return text[len(before) :]

    def _text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=True)
