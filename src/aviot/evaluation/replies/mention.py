"""An option that a reply mentions, and what the reply says of it."""

from dataclasses import dataclass
from typing import Literal

MASK = "\ue000"
"""Stands where an option's text stood, so that no letter is found inside it."""

REACH = 120
"""Characters before a mention that can say something about it; a bound that keeps the reading of long replies fast."""


@dataclass(frozen=True)
class Mention:
    """One mention of an option, counted from 0, by its letter, its place ("the first option") or its text.

    The flags are what the reply says of the option; `group` is the same for mentions that are joined ("A or B").
    """

    option: int
    start: int
    end: int
    kind: Literal["letter", "place", "text"]
    is_explicit: bool = False  # cannot be a stray letter: in brackets, before a mark, after "option"
    is_small: bool = False  # an option of one common word
    is_number: bool = False  # an option that opens with a number
    is_labelled: bool = False  # in brackets or before a mark, as in a list of options
    group: int = 0
    asserted: bool = False  # said to be the answer
    bare: bool = False  # asserted in that its clause says nothing else
    final: bool = False  # said to be the final answer
    denied: bool = False  # ruled out
    withdrawn: bool = False  # said and taken back: a first guess, a concession
    unsettled: bool = False  # asked, doubted, or said under a condition
    weak: bool = False  # said with a hedge
    revisable: bool = False  # said to be the first choice: gives way to any other that stands
    alternative: bool = False  # one of several that are left open ("A or B")
    listed: bool = False  # part of a list of options

    @property
    def stands(self) -> bool:
        """Whether the reply gives the option as its answer."""
        return self.asserted and not (self.denied or self.withdrawn or self.unsettled or self.listed)
