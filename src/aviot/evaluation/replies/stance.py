"""Assertions and denials of an option by the words right before and after its mention."""

import re

from aviot.evaluation.replies.clauses import MASK, REACH
from aviot.evaluation.text import LETTER

_ASSERTING = (
    r"answer|ans|choose|chose|chosen|pick(?:ed)?|select(?:ed)?|go(?:ing)? with|went with|go(?:ing)? for|opt(?:ed)? for|"
    r"settled? (?:on|for)|(?:correct|right|best|final|most likely) (?:option|choice|one|letter|selection|response)|"
    r"(?:option|choice) that|conclusion|conclude|lean(?:ing)?(?: towards?)?|guess|prefer|favou?r|"
    r"vote(?: is| goes)?(?: for| to)?|money (?:is )?on|(?<!not )(?<!less )(?<!n't )confident (?:in|of|about)|selection|"
    r"stick(?:ing)? with|none other than|without (?:a )?doubt|no doubt|"
    r"(?:by|process of|through|via) elimination|leaves(?: us with| only)?|leaving|left with|verdict|decision|"
    r"one that \w+|"
    r"正确选项|答案|应选|选择|选|respuesta|respuesta correcta|antwort|réponse|resposta|risposta|ответ|答え|정답"
)
_LINK = (
    r"is|was|are|would|could|can|may|might|must|should|will|has|to|be|being|that|it|it's|this|either|both|indeed|actually|"
    r"clearly|definitely|likely|probably|most|the|an?(?=\s+(?:option|choice))|option|choice|letter|number|correct|right|"
    r"best|final|my|therefore|thus|so|here|only|not|given|above|question|for|of|us|with|"
    r"among|these|those|them|all|options|"
    r"应该|应当|应|该|为|是|选项|选择|选|就|不|的|es|ist|est|é|è|la|は|는|은"
)
ASSERTED_BEFORE = re.compile(
    rf"(?:(?<!{LETTER})(?:{_ASSERTING}))(?:[\s:=,>\-(\[]*(?:{_LINK})(?!{LETTER}))*[\s:=,>\-.(\[]*$", re.IGNORECASE
)
_LETTER_ASSERTED_BEFORE = re.compile(
    r"\b(?:it|that|this|answer)(?:'s|\s+is|\s+was|\s+(?:must|has to|has got to|should|would|will|can only) be)"
    r"(?:\s+(?:indeed|actually|clearly|definitely|likely|probably|most likely|really|simply|just))*"
    r"\s+(?:(?:the\s+)?(?:option|choice|letter)\s+)?[(\[]?$"
    r"|\b(?:between|of|among)\s+(?:options?\s+)?[(\[]?(?-i:[A-Z])\b"
    r"[^.;\n]{0,20}\b(?:and|or)\s+[(\[]?(?-i:[A-Z])[)\]]?\s*[:,]\s*$"
    r"|\b(?:points? to|suggests?|indicates?|supports?|(?:correspond(?:s|ing)?|match(?:es|ed|ing)?|aligns?|consistent|"
    r"(?:best |well )(?:described|represented|captured))(?:\s+(?:to|with|by|in))?)\s+(?:(?:option|choice)\s+)?[(\[]?$"
    r"|\bmakes?\s+(?:it|this|that)\s+(?:(?:option|choice)\s+)?[(\[]?$"
    r"|\bnot\s+(?:only|just|merely)\s+(?:(?:option|choice)\s+)?[(\[]?$|(?:认为|觉得|应该|而|就)?(?:是|为)[\s(\[]*$",
    re.IGNORECASE,
)
_LESS_THAN = re.compile(r"\bless\s+\w+\s+than\s+(?:(?:option|choice)\s+)?[(\[]?$", re.IGNORECASE)
_GOOD = (
    r"correct|right|best|better|answers?\b|likely|likelier|accurate|true|plausible|choice|match|fit|closest|closer|"
    r"preferable|strongest|stronger|appropriate|suitable|supported|consistent with|probable|"
    r"the one\b|(?:the )?only (?:one|option|choice|candidate)|my (?:pick|choice|guess|answer)|"
    r"what\b(?!\s+(?:i|we|you|one)\b)|正确|对|最佳"
)
_ASSERTED_AFTER = re.compile(
    r"[\s)\].,:]*(?:(?:option|choice|选项)\s*)?"
    r"(?:(?:is|was|are|seems?|appears?|looks?|sounds?|(?:would|must|should|has to|might|may|could|can) be|为|是)"
    r"(?:\s*\b(?:to be|clearly|definitely|likely|probably|most|the|my|more|only|both|all|indeed|also|a|option|much|"
    r"slightly|far|obviously|certainly|still|actually|very|somewhat)\b)*"
    rf"\s*(?:{_GOOD})"
    r"|\s+(?:(?:best|better|correctly|accurately|clearly|most closely|closely)\s+)?"
    r"(?:fits|matches|describes|captures|corresponds|summari[sz]es|reflects|aligns|makes (?:the )?(?:more|most) sense|"
    r"makes sense|works best|remains\b|stands out|"
    r"has (?:the )?(?:more|most|better|best)|beats\b|outweighs)|(?:选项)?\s*(?:对|正确))",
    re.IGNORECASE,
)
_FINAL = re.compile(
    r"\bfinal(?:ly)?\s+(?:answer|choice|verdict|decision|response|selection|pick|conclusion)\b[^\n.;!?]{0,30}$",
    re.IGNORECASE,
)
_ANSWER_LINE = re.compile(r"\W*(?:the\s+|my\s+)?(?:correct\s+)?answer(?:\s+is)?\s*[:\uff1a]\W*", re.IGNORECASE)
# A "no" at the end of a line ("A: no\nB: maybe") refers to that line, one before a colon ("no: B") to what precedes.
_DENYING = (
    r"(?:\bnot(?!\s+(?:only|just|merely|sure))|n't\b|\bcannot|\bneither|\bnor|\bnever|"
    r"\bno(?![ \t.!]*\n|\s*:))|\brather than|\binstead of|(?<!none )\bother than|\bexcept(?: for)?|"
    r"\bapart from|\bas opposed to|\banything but|\ball but|"
    r"\beverything but|\brul\w+ out|(?<!\bby )(?<!\bof )\beliminat\w+|\bexclud\w+|\bdiscard\w*|"
    r"\breject\w*|\bdismiss\w*|"
    r"\bunlike|\bunlikely|\bnone of|(?<!no )(?<!without a )(?<!without )(?<!beyond )\bdoubt(?:s|ed)?\b|"
    r"\bhardly|\bagainst|\brefus\w+|\bdeclin\w+|\bavoid\w*|\bhesitat\w+|\breluctant|\bnobody|\bno one|"
    r"\bby no means|\b(?:mistake|error|foolish|silly)(?=\s+to)|\bcompared (?:to|with)|\bcontradicts?|"
    r"\bnothing (?:suggests|supports|indicates|points to)|\b(?:no|little) (?:evidence|support|sign) (?:for|of|that)|"
    r"\balthough|\bthough|\bwhile|\bwhereas|"
    r"\b(?:wrong|incorrect|false|least (?:likely|accurate|plausible)|worst)(?!\s*[:.;,])|"
    r"不是|不选|不会是|不应|并非|而非|排除|不"
)
_FILLING = (
    r"be|is|to|the|an?|choose|pick|select|answer|option|choice|correct|right|likely|both|either|think|believe|say|it's|it|"
    r"that|this|go|with|for|case|way|chance|possible|possibly|could|would|can|as|select|means?|my|"
    r"选项|答案|选择|选|是|该"
)
DENIED_BEFORE = re.compile(rf"(?:{_DENYING})(?:[\s:\"'(\[]*(?:{_FILLING})(?!{LETTER}))*[\s:\"'(\[]*$", re.IGNORECASE)
_EXCEPT = re.compile(
    r"\b(?:(?P<none>none|nothing|no (?:other )?(?:option|choice|one|answer))|all|everything|every option|every one)"
    r"(?: of them| options)?\s+(?:but|except(?: for)?|other than|apart from)\s+(?:for\s+)?"
    r"(?:(?:option|choice)\s+)?[(\[]?$",
    re.IGNORECASE,
)
_ARE_WRONG = re.compile(
    r"[)\]]?\s*(?:is|are|can be)\s+(?:\w+\s+)?(?:wrong|incorrect|false|out\b|eliminated|excluded|ruled out)",
    re.IGNORECASE,
)
_ELIMINATED = re.compile(
    r"(?:\b(?:rul\w+ out|eliminat\w+|exclud\w+|discard\w*|reject\w*|dismiss\w*)|排除)[\s:(\[]*$", re.IGNORECASE
)
_LETTER_DENIED_BEFORE = re.compile(
    r"\b(?<!other )(?:than|over|beats?)\s+(?:(?:the\s+)?(?:option|choice)\s+)?[(\[]?$", re.IGNORECASE
)
_TEXT_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not(?!\s+(?:only|just|merely))|never|no(?!\s+doubt)|without|cannot|nobody)|n't)(?![a-z])"
    r"(?:\s*(?:(?!(?:but|it|rather)\b)[^\W\d_]+|\ue000+)){0,4}\s+$",
    re.IGNORECASE,
)
# "B. Not A" denies what follows.
_ANOTHER = rf"\s+(?:(?:options?|choices?)\s+)?[(\[]*(?:{MASK}|(?-i:[A-Zb-z])(?!{LETTER}))"
_BAD = (
    r"incorrect|wrong|false\b|ruled out|eliminated|excluded|dismissed|discarded|rejected|unlikely|impossible|"
    rf"out\b(?!\s+of\s+(?:the\s+)?(?:\d|{MASK}))|"
    r"inaccurate|irrelevant|implausible|unsupported|less\s+\w+|(?:the\s+)?least\s+\w+|anything but|far from|hardly|"
    r"off\b|too\s+\w+|mistaken|misleading|contradicted|absent|unseen|missing"
)
DENIED_AFTER = re.compile(
    r"[\s)\].:\"']*(?:(?:options?|choices?|选项)\s*)?(?:,?\s*which\s+)?"
    r"(?:(?:is|are|was|were|can|could|would|does|do|did|has|have|seems?|looks?|must|should|may|might|也|都|是)\s*)?"
    r"(?:(?:all|both|also|clearly|definitely|obviously|be|been|quite|probably|therefore|simply|just|an?|the)\s+)*"
    rf"(?:not\b(?!{_ANOTHER})|n't|can't|cannot|won't|never\b|{_BAD}|"
    r"fails?\b|contradicts?\b|lacks?\b|makes? no sense|has no\b|have no\b|conflicts?\b|不是|不对|不正确|错|有误|不符)",
    re.IGNORECASE,
)


def is_asserted(text: str, start: int, end: int, *, by_letter: bool) -> bool:
    """Return whether the words around a range say that it is the answer."""
    first = max(0, start - REACH)
    if ASSERTED_BEFORE.search(text, first, start):
        return True
    if not by_letter:
        return False
    before = _LETTER_ASSERTED_BEFORE.search(text, first, start) or _LESS_THAN.search(text, first, start)
    return bool(before or _ASSERTED_AFTER.match(text, end))


def is_excepted(text: str, start: int, end: int) -> bool:
    """Return whether a range is the exception to what is ruled out ("nothing but C", "all except C are wrong")."""
    found = _EXCEPT.search(text, max(0, start - REACH), start)
    return found is not None and (found["none"] is not None or bool(_ARE_WRONG.match(text, end)))


def is_final(text: str, start: int) -> bool:
    """Return whether the text before an offset announces the final answer, or starts the last line with "Answer:"."""
    if _FINAL.search(text, max(0, start - REACH), start):
        return True
    line = text.rfind("\n", 0, start) + 1
    return bool(line and "\n" not in text[start:].strip() and _ANSWER_LINE.fullmatch(text, line, start))


def is_denied_before(text: str, start: int, *, by_letter: bool) -> bool:
    """Return whether the words before an offset rule out what follows."""
    first = max(0, start - REACH)
    if by_letter and re.search(
        r"\bless\s+\w+\s+than\s+(?:(?:option|choice)\s+)?[(\[]?$", text[first:start], re.IGNORECASE
    ):
        return False
    further = _LETTER_DENIED_BEFORE if by_letter else _TEXT_DENIED_BEFORE
    return bool(DENIED_BEFORE.search(text, first, start) or further.search(text, first, start))


def is_eliminated(text: str, start: int) -> bool:
    """Return whether a verb that rules out a whole list precedes an offset."""
    return bool(_ELIMINATED.search(text, max(0, start - REACH), start))


def is_denied_after(text: str, end: int) -> bool:
    """Return whether the words after an offset rule out what precedes."""
    return bool(DENIED_AFTER.match(text, end))
