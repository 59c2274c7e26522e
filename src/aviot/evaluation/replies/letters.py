"""Options that a reply mentions by their letters."""

import re

from aviot.evaluation.replies.mention import REACH, Mention
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
_TICKED = re.compile(r"\[[xX]\]\s*[(\[]?[A-Za-z](?![A-Za-z])")  # a box that is ticked, before an option
_SEPARATOR = re.compile(r"\s*[).:\]>]|\s*-\s|\s*-(?=\ue000)|\s*,|\s*\n|\s*$|\s*\ue000")


def find_letters(text: str) -> list[Mention]:
    """Return every letter of a folded reply that stands for an option, in order; option texts have to be masked."""
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
    """Return whether a letter that stands alone is an option's and no word: an article, a pronoun, a small letter."""
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
