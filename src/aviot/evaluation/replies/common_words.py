"""Options of one common word (yes, up, on, one, he): when such a word in a reply means the option.

Such words occur in any sentence ("picks up", "no way", "the one on the left"), so they count in certain contexts only.
The rules apply to classes of words, never to one of two opposites alone: a rule for "up" also holds for "down".
"""

import re
from collections.abc import Sequence

from aviot.evaluation.replies.clauses import REACH, Clauses
from aviot.evaluation.replies.discourse import is_bare
from aviot.evaluation.replies.stance import ASSERTED_BEFORE, is_denied_before
from aviot.evaluation.text import fold

_POLAR = {
    "yes": True,
    "true": True,
    "correct": True,
    "right": True,
    "no": False,
    "false": False,
    "incorrect": False,
    "wrong": False,
    "untrue": False,
}
_IN_ORDER = re.compile(
    r"\b(?:first(?!\s+(?:glance|sight|look|guess|thought|impression))|finally|later|"
    r"initially|eventually|afterwards?|subsequently|then|at the (?:end|start|beginning)|"
    r"in the (?:end|beginning))\b",
    re.IGNORECASE,
)
_CORRECTED = re.compile(r"\b(?:actually|in fact|in reality|really|correction|on reflection)\b", re.IGNORECASE)
_WAYS = frozenset(
    {"up", "down", "left", "right", "in", "out", "on", "off", "forward", "backward", "forwards", "backwards"}
)
_RELATIONS = frozenset(
    ("in", "on", "at", "by", "under", "over", "above", "below", "behind", "beside", "near", "inside", "between")
)
_SIDES = frozenset({"left", "right"})
_DIRECTIONS = _SIDES | {"up", "down", "forward", "backward", "forwards", "backwards"}
_OTHERS = frozenset({"it", "he", "she", "they", "i", "we", "you", "not", "none", "both", "neither", "all", "at", "by"})
_COUNTS = frozenset("one two three four five six seven eight nine ten eleven twelve once twice thrice".split())  # noqa: SIM905
COMMON_WORDS = frozenset(_POLAR) | _WAYS | _OTHERS | _COUNTS

_MOVES = (
    r"mov(?:e[sd]?|ing)|go(?:es|ing|ne)?|went|com(?:e[sd]?|ing)|came|travel(?:s|l?ed|l?ing)?|fl(?:y|ies|ew|ying)|"
    r"(?:fall|ris|climb|scroll|swip|roll|turn|head|drift|point|fac|look|tilt|pan|zoom|push|pull|float|walk|runn?|"
    r"driv|jump|swing|spinn?|shift|shoot|bounc|slid|step|lean|swimm?|rotat|sail|hover|glid|mov|march|sink|soar|gaz|"
    r"flow|dropp?|descend|ascend|stay|switch)(?:e|s|es|ed|d|ing|en)?|fell|rose|ran|drove|swam|slid|sank|flew"
)
_MANNER = (
    r"straight|slowly|quickly|fast|steadily|slightly|mostly|mainly|gradually|directly|rapidly|smoothly|vertically|"
    r"horizontally|further|farther|back|towards?|to|the|a|an|from|then|and|or|first|it|itself|all|way|away|again|"
    r"(?:up|down|left|right|for|back)(?:wards?)?|in|out|on|off|,|/"
)
_MOVED = re.compile(rf"\b(?P<verb>{_MOVES})(?:\s*\b(?:{_MANNER})\b|\s*,)*\s*$", re.IGNORECASE)
_IDIOMATIC = re.compile(r"look|pull|push|point|step|drop|stay|lean|shoot|switch", re.IGNORECASE)
_PATH = re.compile(
    r"\s+(?:at|to|towards?|into|onto|from|through|along|past|over|in|on|for|\w+ly|again|fast|straight|here|there|only)\b",
    re.IGNORECASE,
)
_SWITCHES = r"\b(?:turn|switch|flick|flip|click)(?:s|es|ed|ing|ped|ping)?\s+"
_SWITCHED = re.compile(rf"{_SWITCHES}(?:it|them|(?:the|an?|his|her|its|their)\s+(?:\w+\s+){{1,2}}?)\s*$", re.IGNORECASE)
_SWITCHING, _AN_OBJECT = re.compile(f"{_SWITCHES}$", re.IGNORECASE), re.compile(r"\s+(?:the|an?|his|her|its|their)\b")
_NEGATED = re.compile(r"(?:\bnot|n't|\bnever)\s+(?:\w+\s+)?$", re.IGNORECASE)
_STATE = re.compile(
    r"\b(?:is|are|was|were|be|been|stays?|stayed|remains?|remained|turned|switched|direction(?:\s+of\s+\w+)?\s+is)\s+$",
    re.IGNORECASE,
)
_OF_THE_VIDEO = re.compile(
    r"\s+(?:the|this)\s+(?:video|clip|scene|frame|image|screen|camera|background)\b", re.IGNORECASE
)
_DIRECTION = re.compile(r"\bdirection(?:\s+of\s+\w+)?\s+is\s+$", re.IGNORECASE)
_ON_SIDE = re.compile(r"\b(?:to|on|at|from|towards?)\s+(?:the\s+|its\s+|his\s+|her\s+|their\s+)?$", re.IGNORECASE)
_SAID_RIGHT = re.compile(
    r"\b(?:that|this|he|she|you|they|i|we|who)(?:'s|'re|'m|\s+(?:is|are|am|was|were))\s+$", re.IGNORECASE
)
_AND = r"\s*[,\-/]*\s*(?:(?:and|or|then|but|&)\s+)*(?:then\s+)?"
_PAIRED = rf"(?:yes|no|true|false|{'|'.join(sorted(_WAYS))}|{'|'.join(sorted(_COUNTS))})"
_COORDINATED_BEFORE = re.compile(
    rf"\b{_PAIRED}(?:wards?)?\b(?=\s*(?:[-/]|,?\s*(?:and|or|then)\b)){_AND}$", re.IGNORECASE
)
_COORDINATED_AFTER = re.compile(rf"(?=\s*(?:[-/]|,?\s*(?:and|or|then)\b)){_AND}{_PAIRED}(?:wards?)?\b", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"(?:wards?)?\s*(?:$|[.,;:!?)\n]|\b(?:and|then|but|or|because|while|when|after|before|until|as)\b)"
)
_NO_SIDE = re.compile(
    r"\s+(?:answer|option|choice|one|now|away|after|before|here|there|next|behind|at|into|past|through|in)\b"
)
_AFTER_LABEL = re.compile(r"(?:^|\s)[(\[]?[A-Za-z]\s*[)\].:,\-]+\s*$")
_OPENS = re.compile(r"\s*[,.;:!\-]|\s*$")
_OPENS_SUBJECT = re.compile(r"\s+(?:it|he|she|they|there|this|that|i|we|you)\b", re.IGNORECASE)
_SENTENCE_START = re.compile(r"(?:^|[.!?\n;]\s*|\?\s*)$")
_PRONOUN_BEFORE = re.compile(r"\b(?:the|these|those|last|next|other|same|at|all)\s+$", re.IGNORECASE)
_PRONOUN = re.compile(r"\b(?:this|that|no|each|every|any|some|another|which)\s+$", re.IGNORECASE)
_PRONOUN_AFTER = re.compile(
    r"\s+(?:who|that|which|of|on|in|at|with|from|by|another|is|are|was|were|can|could|will|would|does|do|did|has|have|"
    r"again|more|upon|near|behind|under|above|below|to|wearing|holding|standing|sitting)\b|-\w|\s*(?:$|[.,;:!?)\n])",
    re.IGNORECASE,
)
_NEXT_WORD, _ONCE_MORE = re.compile(r"\s+(?!(?:or|and)\b)\w"), re.compile(r"\s+(?:again|more|upon)\b", re.IGNORECASE)
_AND_AGAIN = re.compile(r"\b(?:and|then|later)\s+(?:(?:once|one)\s+)?(?:more|again)\b", re.IGNORECASE)
_ONE_ANOTHER = re.compile(r"\s+(?:another|by\s+one|day|who|of\s+(?:the|them|these|those|us|you))\b|-\w", re.IGNORECASE)
_SUBJECT = (
    r"(?:it|this|that|(?:statement|claim|assertion|description|sentence|proposition|caption|hypothesis)"
    r"(?:\s+(?:above|given|made|in\s+question|here))?)"
)
_STATEMENT = re.compile(
    rf"\b{_SUBJECT}(?:'s|\s+(?:is|was|must\s+be|has\s+to\s+be))\s+"
    r"(?:(?:indeed|clearly|definitely|certainly|actually|obviously|absolutely|also|thus|therefore)\s+)*(?P<not>not\s+)?"
    r"(?P<word>true|false|untrue|correct|incorrect|right|wrong)\b(?!\s+(?:or|and|if|only|to|than|answer|option|choice|side|in|on)\b|/)"
    rf"|\b{_SUBJECT}\s+isn't\s+(?P<word2>true|false|untrue|correct|incorrect|right|wrong)\b"
    r"|^\W*(?:statement\s*:\s*)?(?P<alone>true|false|untrue|correct|incorrect)\W*$",
    re.IGNORECASE,
)


def is_common_word(option: str) -> bool:
    """Return whether an option is one common word."""
    return option.casefold().strip(" .!") in COMMON_WORDS


def are_relations(options: Sequence[str]) -> bool:
    """Return whether the options are prepositions of place (on, under, behind), so that "on the table" names one."""
    return sum(option.casefold().strip(" .!") in _RELATIONS for option in options) >= 2


def means_option(text: str, start: int, end: int, clauses: Clauses, *, relations: bool = False) -> bool:
    """Return whether a common word in a range of a reply means the option of that word.

    `relations`: the options are prepositions of place.
    """
    word = text[start:end].casefold().strip()
    for ending in ("wards", "ward"):
        word = word.removesuffix(ending) if word not in COMMON_WORDS else word
    first = max(0, start - REACH)
    if word == "once" and _AND_AGAIN.search(text):
        return False
    if ASSERTED_BEFORE.search(text, first, start) and not _NO_SIDE.match(text, end):
        return True
    if _COORDINATED_BEFORE.search(text, first, start) or _COORDINATED_AFTER.match(text, end):
        return True
    if _AFTER_LABEL.search(text, first, start):
        return True
    if word in _COUNTS:
        return _is_count(text, word, first, start, end)
    if _SENTENCE_START.search(text[first:start]) and (
        _OPENS.match(text, end) or (word in _POLAR and _OPENS_SUBJECT.match(text, end))
    ):
        return True
    is_praise = word in _SIDES and _SAID_RIGHT.search(text, first, start)
    if is_praise:
        return False
    if is_bare(text, clauses.at(start), start, end, []) and not _NO_SIDE.match(text, end):
        return True
    if relations and word in _RELATIONS:
        return not _OF_THE_VIDEO.match(text, end)
    return word in _WAYS and _is_direction(text, word, first, start, end)


def polarity(options: tuple[str, ...]) -> dict[bool, int] | None:
    """Return which option affirms and which denies, if there is exactly one of each."""
    found: dict[bool, list[int]] = {True: [], False: []}
    for place, option in enumerate(options):
        word = option.casefold().strip(" .!")
        if word in _POLAR:
            found[_POLAR[word]].append(place)
    if len(found[True]) == len(found[False]) == 1:
        return {value: places[0] for value, places in found.items()}
    return None


def stated_polarity(text: str) -> list[tuple[bool, int, int]]:
    """Return each judgement of the statement in question ("The statement is not true.") with its range."""
    found = []
    for match in _STATEMENT.finditer(text):
        word = match["word"] or match["word2"] or match["alone"]
        negated = bool(match["not"] or match["word2"])
        found.append((_POLAR[word.casefold()] != negated, match.start(), match.end()))
    return found


def _is_direction(text: str, word: str, first: int, start: int, end: int) -> bool:
    """Return whether a direction word has its literal meaning: it moves up, on the left, the light is off."""
    if _NO_SIDE.match(text, end) and word in _SIDES:
        return False
    ends = bool(_CLAUSE_END.match(text, end))
    if word in _SIDES and _ON_SIDE.search(text, first, start):
        return True
    if word in ("on", "off") and (switched := (_SWITCHED if ends else _SWITCHING).search(text, first, start)):
        negated = _NEGATED.search(text, first, switched.start())
        return not negated and (ends or bool(_AN_OBJECT.match(text, end)))
    if moved := _MOVED.search(text, first, start):
        if word in ("in", "out", "on", "off"):
            return ends
        return (
            word not in ("up", "down")
            or text[start:end].casefold() != word
            or not _is_phrasal(text, moved["verb"], end)
        )
    if word in _SIDES:
        return ends and bool(_DIRECTION.search(text, first, start))
    return ends and bool(_STATE.search(text, first, start)) and not is_denied_before(text, start, by_letter=False)


def _is_phrasal(text: str, verb: str, end: int) -> bool:
    """Return whether up or down changes a verb's meaning: "turned up late", "looks up a word", "came up with"."""
    if verb.casefold().startswith("turn") or re.match(r"\s+with\b", text[end:]):
        return True
    return bool(_IDIOMATIC.match(verb)) and not (_CLAUSE_END.match(text, end) or _PATH.match(text, end))


def _is_count(text: str, word: str, first: int, start: int, end: int) -> bool:
    """Return whether a number word is a count and not a pronoun ("the one on the left") or conjunction."""
    if _PRONOUN.search(text, first, start):
        return False
    pronoun = _PRONOUN_BEFORE.search(text, first, start)
    if word in ("once", "twice", "thrice"):
        is_conjunction = _SENTENCE_START.search(text[first:start]) and _NEXT_WORD.match(text, end)
        return not (pronoun or is_conjunction or _ONCE_MORE.match(text, end))
    return not (pronoun and _PRONOUN_AFTER.match(text, end)) and not _ONE_ANOTHER.match(text, end)


def changes_direction(text: str, chosen: str, others: Sequence[str]) -> bool:
    """Return whether a reply describes one direction and later another option's ("up first, and finally down")."""
    way, *rest = (fold(option).casefold().strip(" .!") for option in (chosen, *others))
    if way not in _DIRECTIONS or not _IN_ORDER.search(text) or _CORRECTED.search(text):
        return False
    later = [other for other in rest if other in _DIRECTIONS]
    return any(re.search(rf"(?<!not )(?<!n't )\b{other}(?:wards?)?\b", text, re.IGNORECASE) for other in later)
