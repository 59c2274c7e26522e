"""The option that a reply chooses, by its letter, its place or its text; unclear replies choose none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aviot.evaluation.replies.clauses import Clauses
from aviot.evaluation.replies.discourse import is_unsettled, is_withdrawn
from aviot.evaluation.replies.judgement import is_beside, judge_references, judge_texts
from aviot.evaluation.replies.letters import find_letters
from aviot.evaluation.replies.mention import Mention
from aviot.evaluation.replies.option_texts import as_count, mask_texts
from aviot.evaluation.replies.places import find_numbers, find_places
from aviot.evaluation.replies.small_words import becomes_opposite, polarity, stated_polarity
from aviot.evaluation.replies.stance import is_denied_after, is_denied_before
from aviot.evaluation.replies.verdicts import CROSSES
from aviot.evaluation.text import LETTER, fold, one_spelling

How = Literal["letter", "text", "ambiguous", "refusal", "outside", "none"]
MAX_OPTIONS = 26
MOST_MENTIONS = 200
"""Mentions of options that are judged; only a model that repeats itself without end makes more."""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.IGNORECASE | re.DOTALL)
_TAGGED = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.IGNORECASE | re.DOTALL)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_DRESSED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")
_STRUCK = re.compile(r"~~[^~\n]+~~|<(del|strike)>.*?</\1>|\\(?:cancel|sout|st)\s*\{[^{}]*\}", re.IGNORECASE | re.DOTALL)
_STRUCK_OR_WHOLE = re.compile(r"<s>(.*?)</s>", re.IGNORECASE | re.DOTALL)  # struck out, or a tokenizer's first and last
_QUOTED = re.compile(rf"(?<!{LETTER})'\s*([A-Za-z])\s*([.)]?)\s*'(?!{LETTER})")
_BARE = re.compile(rf"[^\w{CROSSES}]*_*([A-Za-z])_*[^\w{CROSSES}]*")
_BEFORE_LEADING = re.compile(r"[\s\-#>.:]*(?:(?:option|choice|answer|letter)\s*)?[\s(\[]*", re.IGNORECASE)
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


@dataclass(frozen=True)
class Choice:
    """The option that was chosen, counted from 0, or none; and what decided it."""

    index: int | None
    how: How


def choose(reply: str, options: Sequence[str]) -> Choice:
    """Return the one option that a reply chooses.

    Its letter counts however it is written ("B", "(b)", "The answer is B.", "答案：Ｂ"), or its place ("option 2"),
    else its text, article, case and punctuation aside. Options that the reply rules out ("not A but C"), takes back,
    doubts or only mentions do not count. Two options that both stand, a letter beside another option's text, a refusal
    and a letter beyond the options choose nothing.
    """
    text, options = one_spelling(_conclusion(fold(reply))), [one_spelling(fold(option)) for option in options]
    if bare := _BARE.fullmatch(text):
        return _by_places({ord(bare[1].upper()) - ord("A")}, options)
    whole = as_count(text)
    same = [i for i, option in enumerate(options) if whole and as_count(option) == whole]
    if same:
        return Choice(same[0], "text") if len(same) == 1 else Choice(None, "ambiguous")
    masked, texts = mask_texts(_NO_ANSWER.sub(lambda m: " " * len(m[0]), text), options)
    places = find_places(text, len(options))
    if any(_is_another_text(place, texts) for place in places):
        return Choice(None, "ambiguous")
    clauses = Clauses(masked)
    numbers = find_numbers(masked, len(options), places)
    found = sorted([*find_letters(masked), *places, *numbers], key=lambda each: each.start)
    references = judge_references(masked, _first_and_last(found), texts, clauses)
    said = judge_texts(masked, _first_and_last(texts), clauses)
    return _by_references(masked, references, said, options) or _by_texts(text, said, options)


def _by_references(
    text: str, references: Sequence[Mention], texts: Sequence[Mention], options: Sequence[str]
) -> Choice | None:
    """Return what the letters and places in a reply come to; None if they leave the choice to the texts."""
    if standing := _standing(text, references):
        chosen = _by_places({mention.option for mention in standing}, options)
        clear = chosen.index is None or not _is_contradicted(text, standing, references, texts)
        return chosen if clear else Choice(None, "ambiguous")
    if (left := _left_over(references, len(options))) is not None:
        return Choice(left, "letter")
    if _REFUSING.search(text) and not any(mention.stands for mention in texts):
        return Choice(None, "refusal")
    left_open = [mention for mention in references if not mention.denied]
    if len({mention.option for mention in left_open}) > 1:
        return Choice(None, "ambiguous")
    if any(mention.is_explicit or mention.asserted or mention.unsettled for mention in left_open):
        return Choice(None, "none")
    return None


def _is_another_text(place: Mention, texts: Sequence[Mention]) -> bool:
    """Return whether "option 2" is also the text of an option that is not the second."""
    meant = {each.option for each in texts if each.start < place.end and place.start < each.end}
    return bool(meant) and place.option not in meant


def _first_and_last(mentions: list[Mention]) -> list[Mention]:
    """Return all mentions, or the first and the last of very many."""
    half = MOST_MENTIONS // 2
    return mentions if len(mentions) <= MOST_MENTIONS else mentions[:half] + mentions[-half:]


def _conclusion(text: str) -> str:
    """Return what a reply ends in: after its thoughts, inside its answer tags or box; without emphasis and quotes.

    What is struck out is left out.
    """
    text = _STRUCK.sub(" ", _THOUGHT.sub(" ", text).rpartition("</think>")[2])
    rest = _STRUCK_OR_WHOLE.sub(" ", text)
    text = rest if rest.strip() else _STRUCK_OR_WHOLE.sub(r" \1 ", text)
    if tagged := _TAGGED.findall(text):
        text = tagged[-1]
    text = _DRESSED.sub(r" \1 ", text)
    if boxed := _BOXED.findall(text):
        text = boxed[-1]
    text = re.sub(r"[*`\"$]|(?<!\w)_+|_+(?!\w)", " ", text)
    return _QUOTED.sub(r" \1\2 ", text).strip()


def _standing(text: str, references: Sequence[Mention]) -> list[Mention]:
    """Return the mentions that decide: final answers, or else assertions and an opening label."""
    standing = [mention for mention in references if mention.stands]
    if finals := [mention for mention in standing if mention.final]:
        return finals
    if later := [mention for mention in standing if not mention.revisable]:
        standing = later
    leading = _leading(text, references)
    if leading is not None and leading not in standing:
        if standing or text[leading.end :].lstrip().startswith(","):
            standing.append(leading)
        else:
            standing = [mention for mention in references if mention.is_labelled and not mention.denied]
    single = {mention.option for mention in standing if not mention.alternative}
    if len(single) == 1:
        groups: dict[int, set[int]] = {}
        for mention in standing:
            groups.setdefault(mention.group, set()).add(mention.option)
        if all(single <= options for options in groups.values()):
            return [mention for mention in standing if not mention.alternative]
    return standing


def _leading(text: str, references: Sequence[Mention]) -> Mention | None:
    """Return the label that a reply opens with, if it is not ruled out, taken back or part of a list."""
    if not references or not _BEFORE_LEADING.fullmatch(text, 0, references[0].start):
        return None
    first = references[0]
    return first if first.is_labelled and not (first.denied or first.withdrawn or first.listed) else None


def _left_over(references: Sequence[Mention], count: int) -> int | None:
    """Return the option that is left where a reply rules out all others, at least two."""
    denied = {mention.option for mention in references if mention.denied and 0 <= mention.option < count}
    others = set(range(count)) - denied
    return others.pop() if len(denied) >= 2 and len(others) == 1 else None


def _by_places(places: set[int], options: Sequence[str]) -> Choice:
    if len(places) > 1:
        return Choice(None, "ambiguous")
    place = places.pop()
    return Choice(place, "letter") if 0 <= place < len(options) else Choice(None, "outside")


def _is_contradicted(
    text: str, standing: Sequence[Mention], references: Sequence[Mention], texts: Sequence[Mention]
) -> bool:
    """Return whether a reply rules out its own choice, or says another option's text for it ("B) the cat" for A)."""
    index, is_final = standing[0].option, any(mention.final for mention in standing)
    if not is_final and any(each.option == index and each.denied and not each.unsettled for each in references):
        return True
    if any(each.stands and not each.bare and each.final >= is_final and each.option != index for each in texts):
        return True
    for mention in standing:
        options = {each.option for each in texts if is_beside(text, mention, each) and not each.denied}
        if options and index not in options:
            return True
    return False


def _by_texts(text: str, texts: Sequence[Mention], options: Sequence[str]) -> Choice:
    """Return the option whose text a reply without letters contains, if it is the only one that is not ruled out."""
    affirmed = [each for each in texts if not (each.denied or each.withdrawn or each.unsettled)]
    claimed = [each for each in affirmed if each.asserted and not each.bare]
    finals = [each for each in affirmed if each.asserted and each.final]
    if claimed and not finals:  # a common word counts only where it answers, so it weighs as much as a claim
        claimed += [each for each in affirmed if each.is_small]
    standing = {each.option for each in finals or claimed or affirmed}
    if not texts and (sides := polarity(tuple(options))) is not None:
        standing = {sides[value] for value in _stated(text)}
    if len(standing) == 1:
        index = standing.pop()
        if becomes_opposite(text, options[index], [other for other in options if other is not options[index]]):
            return Choice(None, "ambiguous")
        return Choice(index, "text")
    return Choice(None, "ambiguous" if standing else "none")


def _stated(text: str) -> set[bool]:
    """Return what a reply says of the statement in question, where it neither asks, doubts nor supposes."""
    clauses = Clauses(text)
    said = set()
    for value, start, end in stated_polarity(text):
        clause = clauses.at(start)
        doubted = is_unsettled(text, clause, start, end) or is_withdrawn(text, clause, start, end, by_letter=False)
        if not (doubted or is_denied_before(text, start, by_letter=False) or is_denied_after(text, end)):
            said.add(value)
    return said
