"""Texts of options that a reply contains."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aviot.evaluation.replies.mention import MASK
from aviot.evaluation.text import ARTICLES, LETTER, NO_ARTICLE, UNSPACED, normal, spellings, words


@dataclass(frozen=True)
class OptionText:
    """An option's text in a reply."""

    option: int
    start: int
    end: int


def mask_options(text: str, options: Sequence[str]) -> tuple[str, list[OptionText]]:
    """The reply with every option's text masked, longest first, and where each was; equal options share a place."""
    found: list[OptionText] = []
    alike: dict[str, list[int]] = {}
    for index, option in enumerate(options):
        alike.setdefault(normal(option), []).append(index)
    for same in sorted(alike.values(), key=lambda indices: -len(options[indices[0]])):
        if (pattern := _option_pattern(options[same[0]])) is None:
            continue
        found += [OptionText(i, match.start(), match.end()) for match in pattern.finditer(text) for i in same]
        text = pattern.sub(lambda match: MASK * len(match[0]), text)
    return text, sorted(found, key=lambda each: each.start)


def _option_pattern(option: str) -> re.Pattern[str] | None:
    """An option's words with anything but letters between them; None for a single letter, which is read as one."""
    found = words(option)
    if not found or re.fullmatch("[a-z]", "".join(found)):
        return None
    parts = ["|".join(map(re.escape, spellings(word))) for word in found]
    articles, gap = f"(?:{'|'.join(ARTICLES)})", rf"[^\w{MASK}]"
    article = rf"(?:(?<!{LETTER}){articles}\s+(?!{NO_ARTICLE}))?"
    between = rf"(?:{gap}+{articles}(?!{LETTER}))*{gap}*"
    edge = rf"(?<!{LETTER})", rf"(?!{LETTER})"
    first = "" if re.match(f"[{UNSPACED}]", found[0]) else edge[0]
    last = "" if re.search(f"[{UNSPACED}]$", found[-1]) else edge[1]
    return re.compile(article + first + between.join(f"(?:{part})" for part in parts) + last, re.IGNORECASE)
