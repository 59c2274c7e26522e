"""Option letters that a reply mentions: where, how firmly, and whether it says that they are wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aviot.evaluation.text import LETTER

MASK = "\ue000"
"""Stands where an option's text stood, so that no letter is found inside it."""

REACH = 120
"""Characters before a letter that can say something about it; a bound, so that long replies take no long time."""

_ASSERTING = (
    r"answer|ans|choose|chose|chosen|pick(?:ed)?|select(?:ed)?|go(?:ing)? with|went with|go(?:ing)? for|opt(?:ed)? for|"
    r"settled? (?:on|for)|(?:correct|right|best|final|most likely) (?:option|choice|one|letter|selection|response)|"
    r"(?:option|choice) that|conclusion|conclude|leaning towards?|guess|正确选项|答案|应选|选择|选"
)
_LINK = (
    r"is|was|are|would|could|can|may|might|must|should|will|has|to|be|being|that|it|it's|this|either|both|indeed|actually|"
    r"clearly|definitely|likely|probably|most|the|an?(?=\s+(?:option|choice))|option|choice|letter|number|correct|right|"
    r"best|final|my|therefore|thus|so|here|only|not|given|above|question|for|of|"
    r"应该|应当|应|该|为|是|选项|选择|选|就|不|的"
)
ASSERTED_BEFORE = re.compile(
    rf"(?:(?<!{LETTER})(?:{_ASSERTING}))(?:[\s:=,>\-(\[]*(?:{_LINK})(?!{LETTER}))*[\s:=,>\-.(\[]*$", re.IGNORECASE
)
_ASSERTED_AFTER = re.compile(
    r"[\s)\].,:]*(?:(?:option|choice|选项)\s*)?"
    r"(?:is|was|are|seems?|appears?|looks?|(?:would|must|should|has to) be|为|是)"
    r"(?:\s*\b(?:to be|clearly|definitely|likely|probably|most|the|my|more|only|both|all|indeed|also|a|option)\b)*"
    r"\s*(?:correct|right|best|answers?\b|likely|accurate|true|plausible|choice|match|fit|正确|对|最佳)",
    re.IGNORECASE,
)
_DENYING = (
    r"\bnot(?!\s+(?:only|just|merely|sure))|n't\b|\bcannot|\bneither|\bnor|\bnever|\bno|\brather than|\binstead of|"
    r"\bother than|\bexcept(?: for)?|\brul\w+ out|\beliminat\w+|\bexclud\w+|\bdiscard\w*|\breject\w*|\bunlike|"
    r"\bunlikely|\bnone of|\balthough|\bthough|\bwhile|\bwhereas|"
    r"\b(?:wrong|incorrect|false|least (?:likely|accurate|plausible)|worst)(?!\s*[:.;,])|"
    r"不是|不选|不会是|不应|并非|而非|排除|不"
)
_FILLING = (
    r"be|is|to|the|an?|choose|pick|select|answer|option|choice|correct|right|likely|both|either|think|believe|say|it's|it|"
    r"that|this|go|with|for|选项|答案|选择|选|是|该"
)
DENIED_BEFORE = re.compile(rf"(?:{_DENYING})(?:[\s:\"'(\[]*(?:{_FILLING})(?!{LETTER}))*[\s:\"'(\[]*$", re.IGNORECASE)
# "B. Not A": what is denied is what follows.
_ANOTHER = rf"\s+(?:(?:options?|choices?)\s+)?[(\[]*(?:{MASK}|(?-i:[A-Zb-z])(?!{LETTER}))"
DENIED_AFTER = re.compile(
    r"[\s)\].:\"']*(?:(?:options?|choices?|选项)\s*)?(?:,?\s*which\s+)?"
    r"(?:(?:is|are|was|were|can|could|would|does|do|did|has|have|seems?|looks?|must|should|也|都|是)\s*)?"
    r"(?:(?:all|both|also|clearly|definitely|obviously|be|been|quite|probably|therefore|simply|just|an?|the)\s+)*"
    rf"(?:not\b(?!{_ANOTHER})|n't|can't|cannot|won't|never\b|incorrect|wrong|false\b|ruled out|eliminated|excluded|"
    r"out\b|unlikely|impossible|inaccurate|irrelevant|不是|不对|不正确|错|有误|不符)",
    re.IGNORECASE,
)
_AFTER_A = (
    r"is|was|are|and|or|because|since|as|seems?|appears?|would|could|must|should|but|nor|looks?|fits?|best|matches|"
    r"describes|correctly|isn't|can't|cannot|due|given|too|also|instead|rather|here|then"
)
_NAMING = re.compile(
    r"\b(?:vitamin|plan|team|group|player|person|man|woman|speaker|scene|video|clip|frame|camera|part|section|point|figure|"
    r"type|grade|class|level|room|gate|building|street|block|hepatitis|model|version|side|bus|line)\s+$",
    re.IGNORECASE,
)
_SAID_TO_BE = re.compile(r"\b(?:it|that|this)(?:'s| is)\s+$", re.IGNORECASE)
_NAMED = re.compile(rf"(?:(?<!{LETTER})(?:option|choice|letter|answer)s?|选项|选|案|是|为)[\s:(\[]*$", re.IGNORECASE)
_BRACKETED = re.compile(rf"(?<!{LETTER})[(\[{{<]\s*([A-Za-z])\s*[.:]?\s*[)\]}}>]")
_STANDALONE = re.compile(
    rf"(?<!{LETTER})(?<!['&])(?<!\w-)(?<![A-Z]\.)([A-Za-z])(?!{LETTER})(?!['&]|-\w|\.[A-Za-z](?![a-z]))"
)
_SEPARATOR = re.compile(r"\s*[).:\]>]|\s*-\s|\s*-(?=\ue000)|\s*,|\s*\n|\s*$|\s*\ue000")
_JOINED = re.compile(
    r"[\s)\].\"',]*(?:,|/|&|\+|\b(?:and/or|and|or|nor|as well as|plus|vs\.?|versus)\b|和|或者?|与|及|还是)"
    r"(?:\s*(?:and|or|nor|either|both|also|maybe|possibly|perhaps|option|choice|选项)\b)*[\s(\[\"']*",
    re.IGNORECASE,
)
_JOINING_WORD = re.compile(r"\b(?:and|or|nor)\b|和|或|与|及", re.IGNORECASE)


@dataclass(frozen=True)
class Mention:
    """One letter in a reply."""

    letter: str
    start: int
    end: int
    asserted: bool = False  # it is said to be the answer
    denied: bool = False  # it is said not to be
    labelled: bool = False  # it stands in brackets or before a mark, as in a list of options


def find_mentions(text: str) -> list[Mention]:
    """Every letter of a folded reply that stands for an option, in order; option texts have to be masked."""
    found = {match.start(1): _bracketed(match) for match in _BRACKETED.finditer(text)}
    for match in _STANDALONE.finditer(text):
        if match.start() not in found and _is_label(text, match):
            opens_line = text[: match.start()].rstrip(" \t").endswith("\n")
            labelled = bool(_SEPARATOR.match(text, match.end())) and (match.end() < len(text) or opens_line)
            found[match.start()] = Mention(match[1].upper(), match.start(), match.end(), labelled=labelled)
    mentions = [found[start] for start in sorted(found)]
    return [judged for group in _groups(text, mentions) for judged in _judge(text, group)]


def _bracketed(match: re.Match[str]) -> Mention:
    return Mention(match[1].upper(), match.start(), match.end(), labelled=True)


def _is_label(text: str, match: re.Match[str]) -> bool:
    """Whether a letter that stands alone is an option's and no word: an article, a pronoun, a stray small letter."""
    letter, after = match[1], text[match.end() : match.end() + REACH]
    before = text[max(0, match.start() - REACH) : match.start()]
    named = bool(ASSERTED_BEFORE.search(before) or _NAMED.search(before))
    leads = match.start() < REACH and not before.strip(" \t\n-*#>\"'")
    ends = bool(re.match(r"\s*(?:[).:;,!?\]\n]|$)", after))
    if letter == "I":
        return ends and (named or leads) and not after.startswith(",")
    if letter.isupper() and _NAMING.search(before):
        return False
    if letter == "A":
        as_article = bool(re.match(rf"\s+(?!(?i:{_AFTER_A})\b)[A-Za-z][\w'-]", after))
        return not as_article or bool(re.search(r"\b(?:option|choice|is)[\s:]*$", before))
    if letter.isupper():
        return True
    if letter in "ai":
        follows = ends or bool(re.match(rf"\s+(?:{_AFTER_A})\b", after))
        return follows and (named or (leads and bool(re.match(r"\s*[).:]", after))))
    if ends and _SAID_TO_BE.search(before):
        return True
    return named or (leads and bool(re.match(r"\s*[).:,\-]|\s+\ue000", after)))


def _groups(text: str, mentions: Sequence[Mention]) -> list[list[Mention]]:
    """Letters that are joined by and, or, commas: what is said of one is said of all."""
    groups: list[list[Mention]] = []
    for mention in mentions:
        if groups and _JOINED.fullmatch(text, groups[-1][-1].end, mention.start):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return groups


def _judge(text: str, group: Sequence[Mention]) -> list[Mention]:
    start, end = group[0].start, group[-1].end
    first = max(0, start - REACH)
    denied_before = bool(DENIED_BEFORE.search(text, first, start))
    denied = denied_before or bool(DENIED_AFTER.match(text, end))
    asserted = bool(ASSERTED_BEFORE.search(text, first, start) or _ASSERTED_AFTER.match(text, end))
    joined = bool(_JOINING_WORD.search(text, start, end))
    if len(group) > 1 and denied_before and not joined:  # "not A, B": the first alone
        return [replace(group[0], denied=True), *(replace(m, asserted=asserted) for m in group[1:])]
    return [replace(mention, asserted=asserted, denied=denied) for mention in group]
