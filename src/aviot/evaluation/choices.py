"""Which option a reply chooses: by its letter, or by its text; unclear replies choose none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aviot.evaluation.replies.mention import REACH, Mention
from aviot.evaluation.replies.mentions import find_mentions
from aviot.evaluation.replies.option_texts import OptionText, mask_options
from aviot.evaluation.replies.stance import ASSERTED_BEFORE, DENIED_AFTER, DENIED_BEFORE
from aviot.evaluation.text import LETTER, fold, normal

How = Literal["letter", "text", "ambiguous", "refusal", "outside", "none"]
MAX_OPTIONS = 26

_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.IGNORECASE | re.DOTALL)
_TAGGED = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.IGNORECASE | re.DOTALL)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_DRESSED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")
_QUOTED = re.compile(rf"(?<!{LETTER})'\s*([A-Za-z])\s*([.)]?)\s*'(?!{LETTER})")
_BARE = re.compile(r"[\W_]*([A-Za-z])[\W_]*")
_NO_ANSWER = re.compile(r"(?<!\w)N\s*/\s*A(?!\w)")
_REFUSALS = (
    r"\b(?:can(?:no|')t|can not|could(?:n't| not)|unable to|not able to|impossible to|difficult to|hard to)"
    r"(?:\s+\w+){0,3}\s+"
    r"(?:determin|answer|tell|say|see|view|watch|access|know|identif|provide|choose|decide|process|assist|help|analy[sz]e)",
    r"\bcan(?:no|')t be (?:determined|sure|certain|answered)",
    r"\b(?:i'm|i am|we are) (?:sorry|not sure|unsure|unable|uncertain)",
    r"\b(?:sorry|apologi[sz]e|unclear|unknown)\b",
    r"\bi (?:do not|don't) know\b",
    r"\bas an ai\b",
    r"\b(?:not enough|insufficient|no) (?:information|context|evidence)",
    r"\bdoes(?:n't| not) (?:provide|contain|show) (?:enough|any|sufficient)",
    r"\bnone of (?:the|these|them|those)",
    r"\bno (?:correct|right) (?:answer|option)",
    r"无法|不能确定|不知道|抱歉|对不起|不确定|没有足够|以上都不",
)
_REFUSING = re.compile("|".join(_REFUSALS), re.IGNORECASE)
# One-word options that occur in any sentence: they count where they open a reply or are said to be the answer.
_SMALL_WORDS = frozenset({"yes", "no", "true", "false", "not", "none", "one", "it", "in", "on", "up", "he", "she", "i"})
_OPENED = re.compile(r"\s*[,.;:!\-]|\s+(?:it|he|she|they|there|this|that)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Choice:
    """The option that was chosen, counted from 0, or none; and what decided it."""

    index: int | None
    how: How


def choose(reply: str, options: Sequence[str]) -> Choice:
    """The one option that a reply chooses.

    Its letter counts however it is dressed ("B", "(b)", "The answer is B.", "答案：Ｂ"), else its text, article, case
    and punctuation aside. Letters that the reply rules out ("not A but C") do not count. Two letters that both stand, a
    letter beside another option's text, a refusal and a letter beyond the options choose nothing.
    """
    text = _conclusion(fold(reply))
    if bare := _BARE.fullmatch(text):
        return _by_letters({bare[1].upper()}, options)
    same = [i for i, option in enumerate(options) if normal(option) and normal(option) == normal(text)]
    if same:
        return Choice(same[0], "text") if len(same) == 1 else Choice(None, "ambiguous")
    masked, texts = mask_options(_NO_ANSWER.sub(lambda m: " " * len(m[0]), text), options)
    mentions = [mention for mention in find_mentions(masked) if not mention.denied]
    leading = _leading(masked, mentions)
    asserted = [mention for mention in mentions if mention.asserted]
    if not asserted and leading is None:
        if _REFUSING.search(masked):
            return Choice(None, "refusal")
        if not mentions:
            return _by_texts(masked, texts, options)
    standing = _standing(mentions, asserted, leading, masked)
    letters = {mention.letter for mention in standing}
    chosen = _by_letters(letters, options)
    if chosen.index is not None and any(_contradicts(masked, mention, texts, chosen.index) for mention in standing):
        return Choice(None, "ambiguous")
    return chosen


def _conclusion(text: str) -> str:
    """What a reply ends in: after its thoughts, inside its answer tags or box; emphasis and quotes taken off."""
    text = _THOUGHT.sub(" ", text).rpartition("</think>")[2]
    if tagged := _TAGGED.findall(text):
        text = tagged[-1]
    text = _DRESSED.sub(r" \1 ", text)
    if boxed := _BOXED.findall(text):
        text = boxed[-1]
    text = re.sub(r"[*`\"$]|(?<!\w)_+|_+(?!\w)", " ", text)
    return _QUOTED.sub(r" \1\2 ", text).strip()


def _standing(
    mentions: Sequence[Mention], asserted: Sequence[Mention], leading: Mention | None, text: str
) -> list[Mention]:
    """The mentions that decide: assertions and an opening label; without either, all there are."""
    if asserted:
        return [*asserted, *([leading] if leading is not None and leading.labelled else [])]
    if leading is not None and leading.labelled and not text[leading.end :].lstrip().startswith(","):
        return [mention for mention in mentions if mention is leading or mention.labelled]
    return list(mentions)


def _leading(text: str, mentions: Sequence[Mention]) -> Mention | None:
    """The letter that a reply opens with."""
    if mentions and not text[: mentions[0].start].strip(" \t\n-#>.:"):
        return mentions[0]
    return None


def _by_letters(letters: set[str], options: Sequence[str]) -> Choice:
    inside = {letter for letter in letters if ord(letter) - ord("A") < len(options)}
    if len(letters) > 1:
        return Choice(None, "ambiguous")
    if not inside:
        return Choice(None, "outside")
    return Choice(ord(inside.pop()) - ord("A"), "letter")


def _contradicts(text: str, mention: Mention, texts: Sequence[OptionText], index: int) -> bool:
    """Whether another option's text stands right beside a letter, not ruled out: "B) the cat" where the cat is A."""

    def beside(found: OptionText) -> bool:
        if found.start >= mention.end:
            return not text[mention.end : found.start].strip(" \t\n).:,;-]>")
        return text[mention.start] in "([" and not text[found.end : mention.start].strip()

    options = {found.option for found in texts if beside(found) and not _is_denied(text, found)}
    return bool(options) and index not in options


def _by_texts(text: str, texts: Sequence[OptionText], options: Sequence[str]) -> Choice:
    """The option whose text a reply without letters contains, if it is the only one that is not ruled out."""
    affirmed: set[int] = set()
    claimed: set[int] = set()
    for found in texts:
        if _is_denied(text, found):
            continue
        is_claimed = bool(ASSERTED_BEFORE.search(text, max(0, found.start - REACH), found.start))
        is_small = normal(options[found.option]) in _SMALL_WORDS or options[found.option].casefold() in _SMALL_WORDS
        opens = is_small and found.start == 0 and bool(_OPENED.match(text, found.end))
        if is_claimed or opens:
            claimed.add(found.option)
        if not is_small or is_claimed or opens:
            affirmed.add(found.option)
    standing = claimed or affirmed
    if len(standing) == 1:
        return Choice(standing.pop(), "text")
    return Choice(None, "ambiguous" if standing else "none")


def _is_denied(text: str, found: OptionText) -> bool:
    first = max(0, found.start - REACH)
    return bool(DENIED_BEFORE.search(text, first, found.start) or DENIED_AFTER.match(text, found.end))
