"""Options that a reply mentions by letter ("B") or by position ("the first option", "option 3", "the last one")."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from aviot.evaluation.replies.clauses import REACH
from aviot.evaluation.replies.stance import ASSERTED_BEFORE
from aviot.evaluation.text import LETTER

_AFTER_A = (
    r"is|was|are|with|and|or|because|since|as|seems?|appears?|would|could|must|should|but|nor|looks?|fits?|best|matches|"
    r"describes|correctly|isn't|can't|cannot|due|given|too|also|instead|rather|here|then|over|makes|than|more|less|remains|"
    r"works|fails|vs|versus|beats|does|doesn't|shows|contradicts|lacks|may|might|seemed|looked|appeared|not|wins|closely|"
    r"accurately|corresponds|captures|reflects|aligns|fit|stands|has|\w+n't|don't|do|implies|differs"
)
_ARTICLE_AFTER = re.compile(rf"[ \t]+(?!(?i:{_AFTER_A})\b)[A-Za-z][\w'-]")
_OPTION_BEFORE = re.compile(r"\b(?:option|choice|is)[\s:]*$", re.IGNORECASE)
_NAMING = re.compile(
    r"\b(?:vitamin|plan|team|group|player|person|man|woman|speaker|scene|video|clip|frame|camera|part|section|point|figure|"
    r"type|grade|class|level|room|gate|building|street|block|hepatitis|model|version|side|bus|line|lane|row|"
    r"column|runner|athlete|driver|track|zone|area|exit|platform|terminal|hall|box|door|table|seat|car|train|store|shop)\s+$",
    re.IGNORECASE,
)
_SAID_TO_BE = re.compile(r"\b(?:it|that|this)(?:'s| is)\s+$", re.IGNORECASE)
_NAMED = re.compile(rf"(?:(?<!{LETTER})(?:option|choice|letter|answer)s?|选项|选|案|是|为)[\s:(\[]*$", re.IGNORECASE)
_BRACKETED = re.compile(rf"(?<!{LETTER})[(\[{{<]\s*([A-Za-z])\s*[.:]?\s*[)\]}}>]")
_STANDALONE = re.compile(
    rf"(?<!{LETTER})(?<!['&])(?<!\w-)(?<![A-Z]\.)([A-Za-z])(?!{LETTER})(?!['&]|-\w|\.[A-Za-z](?![a-z]))"
)
_TICKED = re.compile(r"\[[xX]\]\s*[(\[]?[A-Za-z](?![A-Za-z])")  # a ticked box before an option
_SEPARATOR = re.compile(r"\s*[).:\]>]|\s*-\s|\s*-(?=\ue000)|\s*,|\s*\n|\s*$|\s*\ue000")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_BEFORE_LAST = r"(?:(?:second|next)[\s-]+(?:to|from)[\s-]+(?:the\s+)?last|last\s+but\s+one|penultimate)"
_ORDINAL = rf"(?:{_BEFORE_LAST}|{'|'.join(_ORDINALS)}|\d{{1,2}}(?:st|nd|rd|th)|last)"
_NUMBER = rf"(?:{'|'.join(_NUMBERS)}|\d{{1,2}})"
_AND = r"\s*(?:,\s*(?:and|or)?|and|or|&|/)\s*(?:the\s+)?"
_NOUN = r"(?:options?|choices?|alternatives?|candidates?)"
_BY_ORDINAL = re.compile(
    rf"(?<!\bmy )(?<!\byour )(?<!\bour )\b({_ORDINAL}(?:{_AND}{_ORDINAL})*)\s+(?:listed\s+|given\s+)?({_NOUN}|ones?)\b"
    r"(?!\s*[:=]\s*[(\[]?[A-Za-z][)\].]?(?![A-Za-z]))",
    re.IGNORECASE,
)
_BY_NUMBER = re.compile(
    rf"\b{_NOUN}\s*(?:number|no\.?|#)?\s*[(\[]?({_NUMBER}(?:{_AND}{_NUMBER})*)\b(?!\s*(?:%|percent|of\b)|[.:,]\d)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    rf"(?<!\w)(?:(?:answer\s+)?(?:number|(?P<short>no\.))\s*|#\s?)(?P<number>{_NUMBER})\b"
    rf"(?!\s*(?:%|percent)|[.:,]\d)(?(short)(?=\s*(?:[.,;:!?)\n]|$|is\b|was\b)))",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"第([一二三四五六七八九十]|\d{1,2})(?:个)?选项")
_CHINESE_NUMBERS = "一二三四五六七八九十"


@dataclass(frozen=True)
class Mention:
    """A mention of an option, by its letter, its position ("the first option") or its text; `option` is 0-based.

    The flags describe how the reply mentions it; joined mentions ("A or B") have the same `group`.
    """

    option: int
    start: int
    end: int
    kind: Literal["letter", "position", "text"]
    is_explicit: bool = False  # certainly a label: in brackets, before punctuation, or after "option"
    is_common_word: bool = False  # the option is one common word
    is_number: bool = False  # the option starts with a number
    is_labelled: bool = False  # in brackets or before punctuation, as in a list of options
    group: int = 0
    asserted: bool = False  # given as the answer
    bare: bool = False  # asserted because its clause says nothing else
    final: bool = False  # given as the final answer
    denied: bool = False  # ruled out
    withdrawn: bool = False  # a first guess, a concession, or corrected later
    unsettled: bool = False  # in a question, a doubt or a condition
    weak: bool = False  # hedged
    revisable: bool = False  # called the first choice: yields to any other that stands
    alternative: bool = False  # one of several that are left open ("A or B")
    listed: bool = False  # part of a list of options

    @property
    def stands(self) -> bool:
        """Return whether the reply gives the option as its answer."""
        return self.asserted and not (self.denied or self.withdrawn or self.unsettled or self.listed)


def find_letters(text: str) -> list[Mention]:
    """Return every letter of a folded reply that denotes an option, in order; option texts must be masked."""
    bracketed = [match for match in _BRACKETED.finditer(text) if not _TICKED.match(text, match.start())]
    found = {match.start(1): _mention(match, is_labelled=True) for match in bracketed}
    for match in _STANDALONE.finditer(text):
        ticked = match[1] in "xX" and _TICKED.match(text, max(0, match.start() - 1))
        if match.start() not in found and not ticked and _is_label(text, match):
            opens_line = text[: match.start()].rstrip(" \t").endswith("\n")
            is_labelled = bool(_SEPARATOR.match(text, match.end())) and (match.end() < len(text) or opens_line)
            named = _NAMED.search(text, max(0, match.start() - REACH), match.start())
            found[match.start()] = _mention(match, is_labelled=is_labelled, is_named=bool(named))
    return [found[start] for start in sorted(found)]


def _mention(match: re.Match[str], *, is_labelled: bool, is_named: bool = False) -> Mention:
    option = ord(match[1].upper()) - ord("A")
    explicit = is_labelled or is_named
    return Mention(option, match.start(), match.end(), "letter", is_explicit=explicit, is_labelled=is_labelled)


def _is_label(text: str, match: re.Match[str]) -> bool:
    """Return whether a single letter denotes an option and is not an article, a pronoun or a lower-case word."""
    letter, after = match[1], text[match.end() : match.end() + REACH]
    before = text[max(0, match.start() - REACH) : match.start()]
    if letter.isupper() and letter != "I":
        if _NAMING.search(before):
            return False
        is_article = letter == "A" and _ARTICLE_AFTER.match(after)
        return not is_article or bool(_OPTION_BEFORE.search(before))
    leads = match.start() < REACH and not before.strip(" \t\n-*#>\"'")
    ends = bool(re.match(r"\s*(?:[).:;,!?\]\n]|$)", after))
    named = bool(ASSERTED_BEFORE.search(before) or _NAMED.search(before))
    if letter == "I":
        return ends and (named or leads) and not after.startswith(",")
    opens_line = not before.rpartition("\n")[2].strip(" \t-*#>|") and bool(re.match(r"[).:]\s", after))
    if opens_line or (leads and re.match(r"\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b", after)):
        return True
    if letter in "ai":
        follows = ends or bool(re.match(rf"\s+(?:{_AFTER_A})\b", after))
        return follows and (named or (leads and bool(re.match(r"\s*[).:]", after))))
    if ends and _SAID_TO_BE.search(before):
        return True
    return named or (leads and bool(re.match(r"\s*[).:,\-]|\s+\ue000", after)))


def find_positions(text: str, count: int) -> list[Mention]:
    """Return every mention by position among `count` options."""
    return sorted(_find(text, count), key=lambda mention: mention.start)


def find_numbers(masked: str, count: int, positions: Sequence[Mention]) -> list[Mention]:
    """Return the mentions by a number alone ("number 3", "#3") that are not among the given positions.

    Option texts must be masked: if an option is "3", "number 3" means that one.
    """
    return [
        Mention(_index(match["number"].lower(), count), match.start(), match.end(), "position")
        for match in _ALONE.finditer(masked)
        if not any(position.start <= match.start("number") < position.end for position in positions)
    ]


def _find(text: str, count: int) -> Iterator[Mention]:
    for pattern, unit in ((_BY_ORDINAL, _ORDINAL), (_BY_NUMBER, _NUMBER)):
        for match in pattern.finditer(text):
            noun = pattern is _BY_ORDINAL and match[2].lower()
            for part in re.finditer(unit, match[1], re.IGNORECASE):
                start, end = match.start(1) + part.start(), match.start(1) + part.end()
                last = match.end(1) == end
                yield Mention(
                    _index(part[0].lower(), count),
                    start,
                    match.end() if last else end,
                    "position",
                    is_explicit=noun not in ("one", "ones"),
                )
    for match in _CHINESE.finditer(text):
        index = _CHINESE_NUMBERS.index(match[1]) if match[1] in _CHINESE_NUMBERS else int(match[1]) - 1
        yield Mention(index, match.start(), match.end(), "position", is_explicit=True)


def _index(word: str, count: int) -> int:
    """Return the 0-based index of an ordinal or number; -1 for "option 0"."""
    if word == "last":
        return count - 1
    if re.fullmatch(_BEFORE_LAST, word):
        return count - 2
    for words in (_ORDINALS, _NUMBERS):
        if word in words:
            return words.index(word)
    return int(re.sub(r"\D", "", word)) - 1
