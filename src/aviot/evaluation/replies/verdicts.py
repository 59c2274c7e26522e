"""Verdicts on options in tables ("A: no", "✓ B"), scores ("A: 70 %, B: 30 %") and rankings ("C > A > B")."""

import itertools
import re
from collections.abc import Sequence

from aviot.evaluation.replies.clauses import MASK, REACH
from aviot.evaluation.replies.references import Mention

TICKS, CROSSES = "\u2713\u2714\u2705\u2611\u221a", "\u2717\u2718\u274c\u2716\u00d7\u2612"
_YES = (
    r"yes|true|correct|right|seen|shown|visible|present|supported|confirmed|likely|plausible|possible|matche[sd]|match|"
    r"fits?|\u662f|\u5bf9|\u6b63\u786e"
)
_NOT = (
    r"(?:no(?!\s+(?:doubt|question|wonder|matter))|not|never|isn't|doesn't|wasn't|didn't|cannot|can't)\b"
    r"[^\n,;.:()|?]{0,40}|false|incorrect|wrong|unseen|absent|"
    r"unsupported|unlikely|impossible|implausible|ruled out|eliminated|excluded|rejected|"
    r"\u4e0d\u662f|\u4e0d\u5bf9|\u9519\u8bef|\u9519|\u4e0d\u6b63\u786e|\u5426"
)
_VERDICT = rf"(?:(?P<no>{_NOT}|[{CROSSES}])|(?P<yes>(?:{_YES})(?![\w-])|[{TICKS}]))"
_MARK = r"(?:[:=|(]|-+>?|\u2192|=>)(?:\s*(?:this|it|that)(?:\s+(?:is|was|option|one)|'s)+)?"
_AT_ONCE = re.compile(
    rf"[\s)\].]*(?:(?:{_MARK})\s*{_VERDICT}(?=[\s).,;|!]|$)|(?P<sign>[{TICKS}{CROSSES}]))"
    r"|\s+(?:yes|true|correct|right|(?P<false>no|false|incorrect|wrong))(?=\s*(?:[,;|]|$))",
    re.IGNORECASE,
)
_AFTER_BRACKET = re.compile(rf"\s*{_VERDICT}\s*(?:[.;,!]|$)", re.IGNORECASE)
_LABEL_ONLY = re.compile(rf"\s*[)\].]\s*{_VERDICT}\s*[.;!]?$", re.IGNORECASE)
_AT_THE_END = re.compile(rf"(?:[:=|(,]|\s-+>?|\u2192|=>)\s*{_VERDICT}[\s).|!]*$", re.IGNORECASE)
_SURELY = r"definitely|certainly|absolutely|clearly|obviously|of course|indeed"
_AFTER_QUESTION = re.compile(
    rf"\?+\s*(?:(?:(?:{_SURELY}|most)\s+)*{_VERDICT}|(?:{_SURELY}))\s*(?:[.,;!\n]|$)", re.IGNORECASE
)
_SIGN_BEFORE = re.compile(
    rf"(?:^|[\n,;|])[ \t\-*\u2022]*(?:(?P<yes>[{TICKS}]|\[[xX]\])|(?P<no>[{CROSSES}]|\[[ \t]*\]))[ \t(\[]*$"
)
_HEADING = re.compile(
    rf"(?:^|[\n.;,|])[\s\-#>]*(?:(?P<no>{_NOT})|"
    r"yes|true|correct|right|seen|shown|visible|supported|remaining|left|best|most likely)"
    r"(?:\s+(?:options?|answers?|choices?|ones?|candidates?))?\s*(?::|\s-)[\s(\[]*$",
    re.IGNORECASE,
)
_LIST_HEADING = re.compile(
    rf"(?:^|\n)[\s\-#>]*(?:(?P<no>{_NOT})|yes|true|correct|right|seen|shown|supported|remaining|best|most likely)"
    r"(?:\s+(?:options?|answers?|choices?|ones?|candidates?))?[ \t]*:[ \t]*\n"
    rf"(?:[ \t\-\u2022]*[(\[]?(?:[A-Za-z](?![A-Za-z])|{MASK})[^\n]*\n)*[ \t\-\u2022]*[(\[]?$",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:actually|wait|hm+|oh|sorry|oops|well|er|um|in fact)\b[\s,.]*no\s*(?::|\s-)[\s(\[]*$", re.IGNORECASE
)
_LONGEST_LIST = 8 * REACH
_ROW_ENDS = f",;.|/)({TICKS}{CROSSES}"
_TO_NEXT = re.compile(r"[^,;.|/\n]*$")
_LINE_START = re.compile(r"(?:^|\n)[\s\-|>#\u2022]*(?:options?\s+|choices?\s+)?[(\[]?$", re.IGNORECASE)


_SCORE = re.compile(
    rf"[\s)\].:\-]*{MASK}*[\s)\].]*(?:[:=(|,\-]|\u2192|=>|\b(?:is|has|gets|at|with)\b)*[\s(]*(?:an?\s+)?(?:about\s+|~\s*)?"
    r"(?:(?P<percent>\d+(?:\.\d+)?)\s*(?:%|percent\b)(?!\s+of\b)|(?P<part>\d+(?:\.\d+)?)\s*/\s*(?P<whole>\d+)\b|"
    r"(?P<share>[01]?\.\d+)(?![\d%.]))",
    re.IGNORECASE,
)
_ABOVE = re.compile(r"[\s)\].]*(?:>+|\u227b)[\s(\[]*")


def heading_verdict(text: str, start: int) -> bool | None:
    """Return the verdict of a heading or sign before an option ("Incorrect: A", "✓ B"); None if there is none.

    A heading on its own line applies to all lines of its list. "Actually, no: B" is not a heading.
    """
    first = max(0, start - REACH)
    if _TAKEN_BACK.search(text, first, start):
        return None
    found = _SIGN_BEFORE.search(text, first, start) or _HEADING.search(text, first, start)
    found = found or _LIST_HEADING.search(text, max(0, start - _LONGEST_LIST), start)
    return None if found is None else found["no"] is None


def following_verdict(text: str, start: int, end: int, limit: int) -> bool | None:
    """Return the verdict that follows an option up to the end of the line or the next option."""
    line = text.find("\n", end)
    stop = min(limit, len(text) if line < 0 else line, end + 3 * REACH)
    row = text[end:stop].rstrip()
    if stop == limit < len(text) and not (row and row[-1] in _ROW_ENDS):
        row = _TO_NEXT.sub("", row)  # words right before the next option refer to that one
    found = _AT_ONCE.match(row) or (_AFTER_BRACKET.match(row) if text[end - 1] in ")]" else None)
    if found is None and _LINE_START.search(text, max(0, start - REACH), start):
        found = (_LABEL_ONLY.match(row) if stop < limit or stop == len(text) else None) or _AT_THE_END.search(row)
    if found is None:
        return None
    sign = found.groupdict().get("sign")
    return sign in TICKS if sign else found["no"] is None and not found.groupdict().get("false")


def question_verdict(text: str, clause_end: int) -> bool | None:
    """Return the answer to a question that ends at an offset ("A? No."); None if there is none."""
    found = _AFTER_QUESTION.match(text, clause_end)
    return None if found is None else found["no"] is None


def score_verdicts(text: str, mentions: Sequence[Mention]) -> dict[int, bool]:
    """Return the verdicts of a reply's scores or ranking by the start of each mention; empty without either.

    The option with the highest score is affirmed and the others are ruled out; a tie gives no verdicts.
    """
    return _by_rank(text, mentions) or _by_score(text, mentions)


def _by_score(text: str, mentions: Sequence[Mention]) -> dict[int, bool]:
    scores: dict[int, tuple[str, float]] = {}
    for mention in mentions:
        if found := _SCORE.match(text, mention.end):
            scores[mention.start] = _value(found)
    options = {mention.option for mention in mentions if mention.start in scores}
    kinds = {kind for kind, _ in scores.values()}
    if len(options) < 2 or len(options) < len(scores) or len(kinds) > 1:
        return {}
    highest = max(value for _, value in scores.values())
    if sum(value == highest for _, value in scores.values()) > 1:
        return {}
    return {start: value == highest for start, (_, value) in scores.items()}


def _value(found: re.Match[str]) -> tuple[str, float]:
    """Return the kind of a score and its value."""
    if found["percent"]:
        return "percent", float(found["percent"])
    if found["share"]:
        return "share", float(found["share"])
    return f"of {found['whole']}", float(found["part"])


def _by_rank(text: str, mentions: Sequence[Mention]) -> dict[int, bool]:
    """Return the verdicts of a reply's ranking ("C > A > B"), if it has exactly one."""
    ranked: list[Mention] = []
    for upper, lower in itertools.pairwise(mentions):
        if not _ABOVE.fullmatch(text, upper.end, lower.start):
            continue
        if ranked and ranked[-1] is not upper:
            return {}
        ranked += [lower] if ranked else [upper, lower]
    if len({mention.option for mention in ranked}) < len(ranked):
        return {}
    return {mention.start: place == 0 for place, mention in enumerate(ranked)}
