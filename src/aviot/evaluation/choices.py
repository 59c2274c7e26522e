"""Find the option that a reply chooses, by letter, position or text; unclear replies choose none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aviot.evaluation.replies.clauses import Clauses
from aviot.evaluation.replies.common_words import changes_direction, polarity, stated_polarity
from aviot.evaluation.replies.discourse import is_unsettled, is_withdrawn
from aviot.evaluation.replies.judgement import is_adjacent, judge_references, judge_texts
from aviot.evaluation.replies.option_texts import as_count, mask_texts
from aviot.evaluation.replies.references import Mention, find_letters, find_numbers, find_positions
from aviot.evaluation.replies.stance import is_denied_after, is_denied_before
from aviot.evaluation.replies.verdicts import CROSSES
from aviot.evaluation.text import LETTER, fold, one_spelling

How = Literal["letter", "text", "ambiguous", "refusal", "outside", "none"]
MAX_OPTIONS = 26
MAX_MENTIONS = 200
"""Mentions of options that are examined; only degenerate, repetitive replies have more."""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.IGNORECASE | re.DOTALL)
_TAGGED = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.IGNORECASE | re.DOTALL)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_DRESSED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")
_STRUCK = re.compile(r"~~[^~\n]+~~|<(del|strike)>.*?</\1>|\\(?:cancel|sout|st)\s*\{[^{}]*\}", re.IGNORECASE | re.DOTALL)
_STRUCK_OR_WHOLE = re.compile(
    r"<s>(.*?)</s>", re.IGNORECASE | re.DOTALL
)  # strikethrough, or a tokenizer's begin and end tokens
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
    """The index of the chosen option, or None, and how the reply was read."""

    index: int | None
    how: How


def choose(reply: str, options: Sequence[str]) -> Choice:
    """Return the one option that a reply chooses.

    Its letter counts in any notation ("B", "(b)", "The answer is B.", "答案：Ｂ"), or its position ("option 2"),
    else its text, ignoring articles, case and punctuation. Options that the reply rules out ("not A but C"),
    withdraws, doubts or only mentions do not count. Two options that both stand, a letter next to another option's
    text, a refusal and a letter beyond the options choose nothing.
    """
    text, options = one_spelling(_conclusion(fold(reply))), [one_spelling(fold(option)) for option in options]
    if bare := _BARE.fullmatch(text):
        return _by_index({ord(bare[1].upper()) - ord("A")}, options)
    whole = as_count(text)
    same = [i for i, option in enumerate(options) if whole and as_count(option) == whole]
    if same:
        return Choice(same[0], "text") if len(same) == 1 else Choice(None, "ambiguous")
    masked, texts = mask_texts(_NO_ANSWER.sub(lambda m: " " * len(m[0]), text), options)
    positions = find_positions(text, len(options))
    if any(_is_another_text(position, texts) for position in positions):
        return Choice(None, "ambiguous")
    clauses = Clauses(masked)
    numbers = find_numbers(masked, len(options), positions)
    found = sorted([*find_letters(masked), *positions, *numbers], key=lambda each: each.start)
    references = judge_references(masked, _first_and_last(found), texts, clauses)
    said_texts = judge_texts(masked, _first_and_last(texts), clauses)
    return _by_references(masked, references, said_texts, options) or _by_texts(text, said_texts, options)


def _by_references(
    text: str, references: Sequence[Mention], texts: Sequence[Mention], options: Sequence[str]
) -> Choice | None:
    """Return the choice by letters and positions; None if the option texts have to decide."""
    if standing := _standing(text, references):
        chosen = _by_index({mention.option for mention in standing}, options)
        clear = chosen.index is None or not _is_contradicted(text, standing, references, texts)
        return chosen if clear else Choice(None, "ambiguous")
    if (remaining := _remaining_option(references, len(options))) is not None:
        return Choice(remaining, "letter")
    if _REFUSING.search(text) and not any(mention.stands for mention in texts):
        return Choice(None, "refusal")
    open_mentions = [mention for mention in references if not mention.denied]
    if len({mention.option for mention in open_mentions}) > 1:
        return Choice(None, "ambiguous")
    if any(mention.is_explicit or mention.asserted or mention.unsettled for mention in open_mentions):
        return Choice(None, "none")
    return None


def _is_another_text(position: Mention, texts: Sequence[Mention]) -> bool:
    """Return whether a position such as "option 2" is also the text of another option."""
    overlapping = {each.option for each in texts if each.start < position.end and position.start < each.end}
    return bool(overlapping) and position.option not in overlapping


def _first_and_last(mentions: list[Mention]) -> list[Mention]:
    """Return all mentions, or the first and last ones if there are more than MAX_MENTIONS."""
    half = MAX_MENTIONS // 2
    return mentions if len(mentions) <= MAX_MENTIONS else mentions[:half] + mentions[-half:]


def _conclusion(text: str) -> str:
    """Return the final part of a reply: after its reasoning, inside answer tags or a box, without emphasis and quotes.

    Struck-out text is removed.
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
    """Return the mentions that decide: final answers, else assertions and a leading label."""
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
    """Return the label at the start of a reply, unless it is ruled out, withdrawn or part of a list."""
    if not references or not _BEFORE_LEADING.fullmatch(text, 0, references[0].start):
        return None
    first = references[0]
    return first if first.is_labelled and not (first.denied or first.withdrawn or first.listed) else None


def _remaining_option(references: Sequence[Mention], count: int) -> int | None:
    """Return the remaining option of a reply that rules out all others, at least two."""
    denied = {mention.option for mention in references if mention.denied and 0 <= mention.option < count}
    others = set(range(count)) - denied
    return others.pop() if len(denied) >= 2 and len(others) == 1 else None


def _by_index(indices: set[int], options: Sequence[str]) -> Choice:
    if len(indices) > 1:
        return Choice(None, "ambiguous")
    index = indices.pop()
    return Choice(index, "letter") if 0 <= index < len(options) else Choice(None, "outside")


def _is_contradicted(
    text: str, standing: Sequence[Mention], references: Sequence[Mention], texts: Sequence[Mention]
) -> bool:
    """Return whether a reply rules out its own choice, or pairs its letter with another option's text."""
    index, is_final = standing[0].option, any(mention.final for mention in standing)
    if not is_final and any(each.option == index and each.denied and not each.unsettled for each in references):
        return True
    if any(each.stands and not each.bare and each.final >= is_final and each.option != index for each in texts):
        return True
    for mention in standing:
        options = {each.option for each in texts if is_adjacent(text, mention, each) and not each.denied}
        if options and index not in options:
            return True
    return False


def _by_texts(text: str, texts: Sequence[Mention], options: Sequence[str]) -> Choice:
    """Return the option whose text a reply without letters contains, if only one is not ruled out."""
    affirmed = [each for each in texts if not (each.denied or each.withdrawn or each.unsettled)]
    claimed = [each for each in affirmed if each.asserted and not each.bare]
    finals = [each for each in affirmed if each.asserted and each.final]
    if claimed and not finals:  # a common word is only found where it answers, so it counts as a claim
        claimed += [each for each in affirmed if each.is_common_word]
    standing = {each.option for each in finals or claimed or affirmed}
    if not texts and (sides := polarity(tuple(options))) is not None:
        standing = {sides[value] for value in _stated_polarities(text)}
    if len(standing) == 1:
        index = standing.pop()
        if changes_direction(text, options[index], [other for other in options if other is not options[index]]):
            return Choice(None, "ambiguous")
        return Choice(index, "text")
    return Choice(None, "ambiguous" if standing else "none")


def _stated_polarities(text: str) -> set[bool]:
    """Return whether a reply calls the statement true or false, ignoring questions, doubts and conditions."""
    clauses = Clauses(text)
    polarities = set()
    for value, start, end in stated_polarity(text):
        clause = clauses.at(start)
        doubted = is_unsettled(text, clause, start, end) or is_withdrawn(text, clause, start, end, by_letter=False)
        if not (doubted or is_denied_before(text, start, by_letter=False) or is_denied_after(text, end)):
            polarities.add(value)
    return polarities
