"""An option that a reply mentions."""

from dataclasses import dataclass

MASK = "\ue000"
"""Stands where an option's text stood, so that no letter is found inside it."""

REACH = 120
"""Characters before a letter that can say something about it; a bound, so that long replies take no long time."""


@dataclass(frozen=True)
class Mention:
    """One letter in a reply."""

    letter: str
    start: int
    end: int
    asserted: bool = False  # it is said to be the answer
    denied: bool = False  # it is said not to be
    labelled: bool = False  # it stands in brackets or before a mark, as in a list of options
