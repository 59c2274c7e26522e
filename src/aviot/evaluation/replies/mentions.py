"""Option letters that a reply mentions."""

import re

from aviot.evaluation.replies.mention import REACH, Mention
from aviot.evaluation.replies.stance import ASSERTED_BEFORE, judge
from aviot.evaluation.text import LETTER

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


def find_mentions(text: str) -> list[Mention]:
    """Every letter of a folded reply that stands for an option, in order; option texts have to be masked."""
    found = {match.start(1): _bracketed(match) for match in _BRACKETED.finditer(text)}
    for match in _STANDALONE.finditer(text):
        if match.start() not in found and _is_label(text, match):
            opens_line = text[: match.start()].rstrip(" \t").endswith("\n")
            labelled = bool(_SEPARATOR.match(text, match.end())) and (match.end() < len(text) or opens_line)
            found[match.start()] = Mention(match[1].upper(), match.start(), match.end(), labelled=labelled)
    mentions = [found[start] for start in sorted(found)]
    return judge(text, mentions)


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
