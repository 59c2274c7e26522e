"""Stance of a reply towards an option that it mentions: whether it asserts it, or rules it out."""

import re
from collections.abc import Sequence
from dataclasses import replace

from aviot.evaluation.replies.mention import MASK, REACH, Mention
from aviot.evaluation.text import LETTER

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
_JOINED = re.compile(
    r"[\s)\].\"',]*(?:,|/|&|\+|\b(?:and/or|and|or|nor|as well as|plus|vs\.?|versus)\b|和|或者?|与|及|还是)"
    r"(?:\s*(?:and|or|nor|either|both|also|maybe|possibly|perhaps|option|choice|选项)\b)*[\s(\[\"']*",
    re.IGNORECASE,
)
_JOINING_WORD = re.compile(r"\b(?:and|or|nor)\b|和|或|与|及", re.IGNORECASE)


def judge(text: str, mentions: Sequence[Mention]) -> list[Mention]:
    """Return the mentions with what the reply says of them; joined ones ("A and B") share it."""
    return [judged for group in _groups(text, mentions) for judged in _judge(text, group)]


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
