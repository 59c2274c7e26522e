"""Set the flags of every mention: whether the reply asserts, denies, doubts or withdraws the option."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from aviot.evaluation.replies import discourse, stance, verdicts
from aviot.evaluation.replies.clauses import REACH, Clause, Clauses
from aviot.evaluation.replies.option_texts import is_total
from aviot.evaluation.replies.references import Mention
from aviot.evaluation.replies.verdicts import score_verdicts

_JOINED = re.compile(
    r"[\s)(\].\"',]*(?:,|/|&|\+|\b(?:and/or|and|or|nor|as well as|plus|vs\.?|versus|then|followed by)\b|"
    r"和|或者?|与|及|还是)"
    r"(?:\s*(?:and|or|nor|either|both|also|maybe|possibly|perhaps|option|choice|the|选项)\b)*[\s(\[\"']*",
    re.IGNORECASE,
)
_JOINING_WORD = re.compile(r"\b(?:and|or|nor)\b|和|或|与|及", re.IGNORECASE)
_OPEN = re.compile(r"\b(?:or|vs|versus)\b|/|或|还是", re.IGNORECASE)
_OPEN_BEFORE = re.compile(r"\b(?:between|either|both|of|among)\s+(?:(?:options?|choices?)\s+)?[(\[]*$", re.IGNORECASE)
_OPEN_AFTER = re.compile(
    r"[\s)\].]*(?:are|seem|look|appear|could be|might be|may be|were)\s+(?:\w+\s+){0,2}"
    r"(?:plausible|possible|likely|close|similar|reasonable|candidates|contenders)",
    re.IGNORECASE,
)
_SO = re.compile(r"[,.;:!?\n]\s*(?:and\s+)?(?:so|therefore|thus|hence)\b[^,.;:!?\n]*$", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:^|[\s,;:])\d{1,2}[.)]\s*[(\[]?$")
_ALSO = re.compile(r"\b(?:also|too|as\s+well|both)\b", re.IGNORECASE)
_LINE_START = re.compile(r"(?:^|\n)[\s\-|>#*\u2022]*[(\[]?$")
_BETWEEN_LABEL_AND_TEXT = " \t\n).:,;-]>"
_NEAR = 12
"""Longest gap, in characters, between a letter and the option's text that belongs to it."""

_SHORTEST_LIST = 2
"""Consecutive labels that form a list of options, each on its own line or with its option's text."""

_SHORTEST_INLINE = 3
"""Consecutive labels that form a list of options in running text, followed by other texts."""


def judge_references(text: str, found: Sequence[Mention], texts: Sequence[Mention], clauses: Clauses) -> list[Mention]:
    """Return the mentions by letter and position with their flags, which joined mentions share."""
    mentions = sorted(found, key=lambda mention: mention.start)
    starts = [mention.start for mention in mentions]
    scores = score_verdicts(text, mentions)
    ranked = [
        mention.start for mention in mentions if _NUMBERED.search(text, max(0, mention.start - _NEAR), mention.start)
    ]
    judged: list[Mention] = []
    for number, group in enumerate(_groups(text, mentions, clauses)):
        heading = verdicts.heading_verdict(text, group[0].start)
        flagged = [replace(each, group=number) for each in _judge_group(text, group, clauses, _near(texts, group))]
        if len(ranked) > 1:  # "1. B 2. A" is an order, but not necessarily one of preference
            flagged = [replace(each, unsettled=True) if each.start in ranked else each for each in flagged]
        judged += [_with_verdict(text, each, clauses, starts, scores.get(each.start, heading)) for each in flagged]
    return _settle(text, _mark_lists(text, judged, texts), clauses)


def judge_texts(text: str, found: Sequence[Mention], clauses: Clauses) -> list[Mention]:
    """Return the mentions by option text with their flags."""
    judged = []
    starts = [mention.start for mention in found]
    scores = score_verdicts(text, found)
    for number, mention in enumerate(found):
        start, end, clause = mention.start, mention.end, clauses.at(mention.start)
        bare = discourse.is_bare(text, clause, start, end, [])
        concludes = (
            mention.option == found[-1].option and start == found[-1].start and _concludes(text, mention, bare=bare)
        )
        flagged = replace(
            mention,
            group=number,
            asserted=bare or concludes or stance.is_asserted(text, start, end, by_letter=False),
            bare=bare,
            final=concludes or stance.is_final(text, start),
            denied=stance.is_denied_before(text, start, by_letter=False)
            or stance.is_denied_after(text, end)
            or discourse.is_false_claim(text, clause, start, end),
            unsettled=discourse.is_unsettled(text, clause, start, end),
            withdrawn=discourse.is_withdrawn(text, clause, start, end, by_letter=False),
            weak=discourse.is_weak(text, clause, start, end),
        )
        heading = scores.get(start, verdicts.heading_verdict(text, start))
        judged.append(flagged if mention.is_common_word else _with_verdict(text, flagged, clauses, starts, heading))
    return _settle(text, judged, clauses)


def _concludes(text: str, mention: Mention, *, bare: bool) -> bool:
    """Return whether the last option text is the conclusion: a total, or "so blue" and nothing more."""
    if mention.is_number and is_total(text, mention.start, mention.end):
        return True
    return bare and bool(_SO.search(text, max(0, mention.start - REACH), mention.start))


def _groups(text: str, mentions: Sequence[Mention], clauses: Clauses) -> list[list[Mention]]:
    """Return groups of mentions joined by "and", "or" or commas, which share their flags.

    A comma joins nothing after "and" ("Between A and C, A is more likely") nor at the end of a subordinate clause
    ("Though I guessed A, C"), and no option is in a group twice.
    """
    groups: list[list[Mention]] = []
    for mention in mentions:
        group = groups[-1] if groups else []
        if group and _JOINED.fullmatch(text, group[-1].end, mention.start):
            between = text[group[-1].end : mention.start]
            other_clause = clauses.at(group[-1].start) != clauses.at(mention.start)
            ends = other_clause or _JOINING_WORD.search(text, group[0].end, group[-1].start)
            closed = ends and not _JOINING_WORD.search(between)
            if not closed and all(each.option != mention.option for each in group):
                group.append(mention)
                continue
        groups.append([mention])
    return groups


def _near(texts: Sequence[Mention], group: Sequence[Mention]) -> Sequence[Mention]:
    """Return the option texts near a group of letters."""
    low = bisect_left(texts, group[0].start - 2 * REACH, key=lambda each: each.start)
    return texts[low : bisect_right(texts, group[-1].end + 2 * REACH, key=lambda each: each.start)]


def _judge_group(text: str, group: Sequence[Mention], clauses: Clauses, texts: Sequence[Mention]) -> list[Mention]:
    start, end = group[0].start, group[-1].end
    clause = clauses.at(start)
    options = {mention.option for mention in group}
    spans = [(each.start, each.end) for each in texts if each.option in options]
    own = {mention: [each for each in texts if is_adjacent(text, mention, each)] for mention in group}
    excepted = stance.is_excepted(text, start, end)
    denied_before = not excepted and stance.is_denied_before(text, start, by_letter=True)
    denied_after = stance.is_denied_after(text, end) or discourse.is_false_claim(text, clause, start, end)
    bare = discourse.is_bare(text, clause, start, end, spans)
    first_choice = discourse.is_first_choice(text, clause, start)
    announced = stance.is_asserted(text, start, end, by_letter=False)
    asserted = bare or stance.is_asserted(text, start, end, by_letter=True)
    flagged = [
        replace(
            mention,
            asserted=asserted or excepted or first_choice or bool(own[mention]),
            final=stance.is_final(text, start),
            denied=denied_before
            or (not excepted and (denied_after or (not announced and _any_denied(text, own[mention])))),
            unsettled=discourse.is_unsettled(text, clause, start, end),
            withdrawn=discourse.is_withdrawn(text, clause, start, end, by_letter=True),
            weak=discourse.is_weak(text, clause, start, end),
            revisable=first_choice,
            alternative=len(group) > 1 and _is_open(text, start, end),
        )
        for mention in group
    ]
    joined = stance.is_eliminated(text, start) or _JOINING_WORD.search(text, start, end)
    if len(group) > 1 and denied_before and not joined:  # "not A, B" denies A alone
        first, second = flagged[0], group[1]
        rest = discourse.is_bare(text, clauses.at(second.start), second.start, end, spans)
        return [first, *(replace(each, denied=False, asserted=each.asserted or rest) for each in flagged[1:])]
    return flagged


def _any_denied(text: str, own: Sequence[Mention]) -> bool:
    """Return whether a label is ruled out after its option's text ("A) a dog is not seen")."""
    return any(stance.is_denied_after(text, each.end) for each in own)


def _is_open(text: str, start: int, end: int) -> bool:
    """Return whether joined mentions are left open: "A or B", "between A and B", "A and B are plausible"."""
    return bool(
        _OPEN.search(text, start, end)
        or _OPEN_BEFORE.search(text, max(0, start - REACH), start)
        or _OPEN_AFTER.match(text, end)
    )


def is_adjacent(text: str, reference: Mention, found: Mention) -> bool:
    """Return whether an option's text directly follows a letter, or directly precedes a letter in brackets."""
    if reference.end <= found.start <= reference.end + _NEAR:
        return not text[reference.end : found.start].strip(_BETWEEN_LABEL_AND_TEXT + "(")
    if found.end <= reference.start <= found.end + _NEAR:
        between = text[found.end : reference.start].strip(" \t").lower()
        return between in ("(option", "(choice", "(answer") or (not between and text[reference.start] in "([")
    return False


def _with_verdict(
    text: str, mention: Mention, clauses: Clauses, starts: Sequence[int], verdict: bool | None
) -> Mention:
    """Return a mention with the verdict of a heading, a table or an answered question, which override other words."""
    place = bisect_right(starts, mention.start)
    limit = starts[place] if place < len(starts) else len(text)
    if verdict is None:
        verdict = verdicts.following_verdict(text, mention.start, mention.end, limit)
    clause = clauses.at(mention.start)
    if verdict is None and clause.asks:
        verdict = verdicts.question_verdict(text, clause.end)
    if verdict is None:
        return mention
    return replace(mention, asserted=verdict, denied=not verdict, unsettled=False)


def _mark_lists(text: str, mentions: Sequence[Mention], texts: Sequence[Mention]) -> list[Mention]:
    """Mark labels that list the options in order: each starts a line or precedes its option's text."""
    owned = {(each.option, each.start) for each in texts}

    def list_evidence(mention: Mention) -> int:
        """Return 2 for a label that starts a line or precedes its option's text, 1 before punctuation, else 0."""
        after = mention.end
        while after < len(text) and text[after] in _BETWEEN_LABEL_AND_TEXT:
            after += 1
        opens = _LINE_START.search(text, max(0, mention.start - REACH), mention.start)
        marked_off = text[mention.end - 1] in ")]" or text[mention.end : after].lstrip()[:1] in (".", ")")
        own = bool(opens) or (mention.option, after) in owned
        return 0 if not mention.is_labelled or mention.denied else 2 if own else 1 if marked_off else 0

    marked = list(mentions)
    run: list[int] = []
    for place, mention in enumerate([*mentions, None]):
        follows = mention is not None and bool(run) and mention.option == marked[run[-1]].option + 1
        if (
            mention is not None
            and list_evidence(mention)
            and (follows or not run)
            and not _is_answer(text, mention, run)
        ):
            run.append(place)
            continue
        if len(run) >= (
            _SHORTEST_LIST if all(list_evidence(marked[member]) == 2 for member in run) else _SHORTEST_INLINE
        ):
            for member in run:
                marked[member] = replace(marked[member], listed=True)
        run = [place] if mention is not None and list_evidence(mention) else []
    return marked


def _is_answer(text: str, mention: Mention, run: Sequence[int]) -> bool:
    """Return whether a label after others is announced as the answer, and so is not part of the list."""
    return bool(run) and stance.is_asserted(text, mention.start, mention.start, by_letter=False)


def _settle(text: str, mentions: Sequence[Mention], clauses: Clauses) -> list[Mention]:
    """Withdraw mentions that a later clause corrects, and hedged ones before a contrast ("A seems right, but C")."""
    settled = list(mentions)
    for mention in mentions:
        clause = clauses.at(mention.start)
        if not mention.stands or mention.weak or not (clause.corrects is not None or clause.is_contrast):
            continue
        for place, other in enumerate(settled):
            is_claim = other.stands or other.kind == "text"
            if other.end > clause.start or other.option == mention.option or not is_claim:
                continue
            corrects = clause.corrects is not None and not _ALSO.search(text, clause.start, clause.end)
            if (corrects and clause.corrects is not None and other.end <= clause.corrects) or (
                clause.is_contrast and other.weak and _precedes(clauses.at(other.start), clause)
            ):
                settled[place] = replace(other, withdrawn=True)
    return settled


def _precedes(earlier: Clause, clause: Clause) -> bool:
    return clause.sentence - earlier.sentence <= 1
