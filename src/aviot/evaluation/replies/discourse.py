"""The role of a mention in its clause: first guess, concession, doubt, condition, or bare answer."""

import re
from collections.abc import Sequence

from aviot.evaluation.replies.clauses import MASK, REACH, Clause, segment

_GUESS = (
    r"guess|thought|answer|impression|choice|instinct|reaction|inclination|assumption|belief|hypothesis|view|reading|pick|"
    r"response|selection|idea|feeling|hunch|intuition|conclusion"
)
_FIRST_CHOICE = re.compile(
    r"(?:^\s*|\b(?:my|the)\s+)(?:first|initial)\s+(?:choice|pick|answer|selection|vote)\s*"
    r"(?::|is|would\s+be|remains|stays)\s+"
    r"(?:(?:option|choice|letter)\s+)?[(\[]?$",
    re.IGNORECASE,
)
_LATER_CHOICE = re.compile(
    rf"\b(?:second|third|fourth|next|backup|other|alternative)\s+(?:best\s+)?(?:{_GUESS})\s*(?::|is|would\s+be)\s+"
    r"(?:(?:option|choice|letter)\s+)?[(\[]?$",
    re.IGNORECASE,
)
_FIRST_GUESS = (
    rf"\b(?:initial|first|original|earlier|previous|prior)\s+(?:{_GUESS})s?\b|"
    r"\bat (?:a |the )?(?:first|quick) (?:glance|sight|look)\b|\bat a glance\b|"
    r"\bon the (?:surface|face of it)\b|\bsuperficially\b|乍一看|原以为|我?本以为"
)
_BELIEVED = (
    r"\b(?:i|we)\s+(?:had\s+|have\s+|first\s+|initially\s+|originally\s+|at first\s+|once\s+|also\s+)*"
    r"(?:thought|believed|assumed|guessed|figured|expected|supposed|suspected|considered|leaned towards?|"
    r"(?:was|were)\s+(?:going to|about to|inclined to|tempted to|thinking|leaning)|"
    r"(?:would|might|could) have|almost|nearly|used to)\b"
    r"|\b(?:i|we)\s+(?:had\s+)?(?:first|initially|originally|at first)\s+"
    r"(?:picked|chose|selected|said|answered|went with|opted for|favou?red|preferred)\b"
    r"|\b(?:one|you|some|many|people|someone|somebody|others)\s+(?:\w+\s+)?(?:might|may|would|could|can)\b"
    r"|\b(?:some|many|people|others)\s+(?:say|think|believe|argue|claim)\b"
)
_EARLIER = r"\b(?:initially|originally|at first|in the beginning)\b|起初|一开始|最初|原本|本来"
_SEEMED = r"\b(?:seem\w*|look\w*\s+(?:like|as)|appear\w*|thought|guess\w*|believ\w*|assum\w*|suspect\w*)\b|以为|觉得"
_FIRST_GUESSES = re.compile(_FIRST_GUESS, re.IGNORECASE)
_WITHDRAWN = re.compile(f"{_FIRST_GUESS}|{_BELIEVED}", re.IGNORECASE)
_WITHDRAWN_LETTER = re.compile(_EARLIER, re.IGNORECASE)
_WITHDRAWN_TEXT = re.compile(f"(?:{_EARLIER})[^\n]*(?:{_SEEMED})|(?:{_SEEMED})[^\n]*(?:{_EARLIER})", re.IGNORECASE)
_CONCESSION = re.compile(r"\b(?:although|even though|though|even if|despite|in spite of)\b|虽然|尽管", re.IGNORECASE)
_CONCESSION_LETTER = re.compile(r"\b(?:while|whereas)\b", re.IGNORECASE)
_UNCERTAIN = re.compile(
    r"(?:\bnot|n't|\bnever|\bcannot|\bcan not|\bno one)(?:\s+\w+){0,2}?\s+"
    r"(?:sure|certain|confident|convinced|clear|know|knows|tell|say|determine|confirm|verify|decide|exclude|possible)\b"
    r"|\b(?:unsure|uncertain|unclear|unknown|whether|wonder\w*|debatable|doubtful|undecided)\b"
    r"|(?<!no )(?<!without )(?<!without a )(?<!beyond )\bdoubt\b|\b(?:impossible|hard|difficult) to\b|"
    r"\bdepend\w*\b|(?:\bnot|n't) true that\b|\bdisagree\b|\bfail(?:s|ed)? to see\b|\bpremature\b|\btoo early\b|"
    r"\bneed (?:more|to see)\b|\bhardly anyone\b|\bfew (?:would|people)\b|不确定|是否",
    re.IGNORECASE,
)
_FORCED = (
    r"(?:i|we)(?:'m|'d)?\s+(?:\w+\s+){0,3}?(?:guess|choose|pick|decide|answer|say|select|bet|mistaken|wrong|right|recall)|"
    r"it(?:'s| is) between|forced|pressed|pushed|asked|anything|so\b|not\b|required|needed|necessary"
)
_CONDITION = re.compile(
    rf"(?<!even )\b(?:if|unless)\b(?!\s+(?:{_FORCED}))|\b(?:suppose|supposing|assum(?:e|ing)|imagine)\b|"
    r"\b(?:provided that|in case)\b|"
    r"^\s*had\s+(?:it|he|she|they|the\s+\w+)\b|\bhad\s+(?:it|he|she|they)\s+\w+(?:ed|en)\b|"
    r"如果|假如|要是",
    re.IGNORECASE,
)
_CLAIM = re.compile(
    r"(?:^\s*|\b(?:claim|idea|notion|statement|suggestion|assertion|belief|view|assumption|hypothesis|conclusion|argument|"
    r"opinion|fact|saying|say|claiming|arguing|thinking|assuming)\s+)that\b[^,;]*$|"
    r"\b(?:saying|claiming|arguing|choosing|picking|answering)\b[^,;]*$",
    re.IGNORECASE,
)
_CALLED_FALSE = re.compile(
    r"\b(?:is|was|would be|are|seems)\s+(?:(?!not\b)\w+\s+)?"
    r"(?:not\s+(?:\w+\s+)?(?:true|correct|right|accurate|supported|justified)|false|wrong|incorrect|mistaken|untrue|a\s+mistake|an\s+error|unfounded|unsupported|refuted|contradicted)\b",
    re.IGNORECASE,
)
_SO_IS = re.compile(r"\bso\s+(?:is|are|was|were|does|do|did|can)\s+(?:option\s+)?[(\[]?$", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:seem\w*|look(?:s|ed)|appear\w*|might|may|could|can|plausible|possib\w+|tempting|perhaps|maybe|reasonable|close|"
    r"likely|probab\w+|chose|picked|selected|went with|good (?:option|candidate|guess|choice)|partial\w*|partly)\b|"
    r"可能|也许",
    re.IGNORECASE,
)
_FILLERS = frozenset(
    word
    for line in (
        "so therefore thus hence well ok okay sure certainly definitely clearly obviously probably likely",
        "most very surely undoubtedly perhaps maybe possibly also i i'd i'll i'm i've would will say think",
        "believe guess go going with for it it's is was its that that's this be must should could might may",
        "can has have to my our your answer answers option choice letter the correct right best final here",
        "here's please response result of just simply only sorry yes no oh hmm hm actually indeed in",
        "conclusion by elimination process conclude concluded we leaves remaining one choose pick select mean",
        "meant apologies apologize apologise mistake overall really still am are but however instead rather",
        "because since as fact wait suppose solution let's let me us ist es la el die der antwort respuesta",
        "correcta est réponse ответ é resposta 选项 故 所以 因此 我 答案",
        "number now more correction got looks like seems appears changed mind です",
    )
    for word in line.split()
)
_CONFIDENCE = re.compile(
    r"\b(?:with\s+)?(?:an?\s+)?(?:about\s+|around\s+|over\s+)?(?:\d+\s*(?:%|percent)|high|full|great|complete)\s+"
    r"(?:confidence|confident|certainty|certain|sure|probability|likelihood)\b|"
    r"\bconfidence(?:\s+(?:is|level|score))?\s*:?\s*\d+\s*(?:%|percent\b)",
    re.IGNORECASE,
)
_WORD = re.compile(rf"[^\W_]+(?:'[^\W_]+)*|{MASK}")
_LONGEST_BARE = 100
"""Longest part of a clause, in characters, that can be a bare answer."""


def is_withdrawn(text: str, clause: Clause, start: int, end: int, *, by_letter: bool) -> bool:
    """Return whether a mention is a first guess, what others might think, or a concession."""
    first, last = _window(clause, start, end)
    if is_first_choice(text, clause, start):
        return False
    if _WITHDRAWN.search(text, first, start) or _FIRST_GUESSES.search(text, end, last):
        return True
    earlier = _WITHDRAWN_LETTER if by_letter else _WITHDRAWN_TEXT
    if earlier.search(text, first, last):
        return True
    low = max(first, segment(text, clause, start, end)[0])
    return bool(_CONCESSION.search(text, low, start) or (by_letter and _CONCESSION_LETTER.search(text, low, start)))


def is_first_choice(text: str, clause: Clause, start: int) -> bool:
    """Return whether a mention is called the first choice, which stands unless the reply later chooses another."""
    return bool(_FIRST_CHOICE.search(text, max(clause.start, start - REACH), start))


def is_false_claim(text: str, clause: Clause, start: int, end: int) -> bool:
    """Return whether a mention is in a claim that its clause calls false: "that B is correct is wrong"."""
    first, last = _window(clause, start, end)
    return bool(_CLAIM.search(text, first, start) and _CALLED_FALSE.search(text, end, last))


def is_unsettled(text: str, clause: Clause, start: int, end: int) -> bool:
    """Return whether a mention is in a question, a doubt or a condition."""
    first, last = _window(clause, start, end)
    low = max(first, segment(text, clause, start, end)[0])
    conditional = _CONDITION.search(text, first, start) or _CONDITION.search(text, end, last)
    doubted = _UNCERTAIN.search(text, low, start) or _SO_IS.search(text, first, start)
    doubted = doubted or _LATER_CHOICE.search(text, first, start)
    return bool(clause.asks or conditional or doubted)


def is_weak(text: str, clause: Clause, start: int, end: int) -> bool:
    """Return whether the words around a mention are hedges."""
    first, last = _window(clause, start, end)
    return bool(_HEDGE.search(text, first, last))


def is_bare(text: str, clause: Clause, start: int, end: int, own: Sequence[tuple[int, int]]) -> bool:
    """Return whether a part of a clause holds only a mention, the option's text, and words that announce an answer."""
    low, high = segment(text, clause, start, end)
    near = [(first, last) for first, last in own if first < min(clause.end, end + REACH) and last > low]
    high = max([high, *(min(last, clause.end) for first, last in near if first < high)])
    taken = [(start, end), *near]
    if high - low - sum(last - first for first, last in taken) > _LONGEST_BARE or len(near) > _LONGEST_BARE:
        return False
    rest = "".join(
        " " if any(first <= offset < last for first, last in taken) else text[offset] for offset in range(low, high)
    )
    rest = _CONFIDENCE.sub(" ", rest)
    return all(word.lower() in _FILLERS for word in _WORD.findall(rest)) and not re.search(r"[%\d]", rest)


def _window(clause: Clause, start: int, end: int) -> tuple[int, int]:
    """Return the part of a clause that is searched for words about a range."""
    return max(clause.start, start - REACH), min(clause.end, end + REACH)
