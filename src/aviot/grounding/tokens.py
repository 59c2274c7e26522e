"""Cut a text into times, words and marks: numbers with units, clock times, ordinals and numbers in words.

One pass of a pattern without nested repetition cuts the text, and one pass over the pieces joins numbers with their
units, so that the work is linear in the length of any text.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

MAX_DIGITS = 12
"""A number with more digits is not a time."""

HOUR, MINUTE, SECOND = 3600.0, 60.0, 1.0
UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 0.001),
}
UNITS_BEFORE = frozenset({"second", "seconds", "sec", "secs", "minute", "minutes"})
"""Units that may come before their number: "second 3"."""

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_ORDINALS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
CARDINALS = {word: float(value) for value, word in enumerate(_SMALL.split())}
TENS = {word: 10.0 * value for value, word in enumerate(_TENS.split(), 2)}
ORDINALS = {word: float(value) for value, word in enumerate(_ORDINALS.split())} | {
    f"{word[:-1]}ieth": value for word, value in TENS.items()
}
_SUFFIXES = frozenset({"st", "nd", "rd", "th"})
_DASHES = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\u2053\u301c\uff5e", "-")
    | dict.fromkeys("\u2192\u21d2\u27f6\u2794\u279c", "-")  # arrows
    | {"\u2019": "'", "\u2248": "~"}
)
_PIECE = re.compile(
    r"(?P<clock>(?<![\w.:])[0-9]{1,3}(?::[0-9]{1,2}){1,2}(?:[.,][0-9]{1,9}(?![0-9:]))?(?![0-9:]))"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)"
    r"|(?P<word>[^\W\d_]+(?:'[^\W\d_]+)?)"
    r"|(?P<mark>[-=]{1,2}>|\.{2,3}|[^\s\w])"
)


@dataclass(frozen=True)
class Token:
    """A piece of text: a word or mark, or a time of `value` units of `unit` seconds (None: no unit was named).

    `at` and `end` are its characters, `spelt` says that the number was written in words, `kind` what was found.
    """

    kind: Literal["word", "mark", "time", "percent"]
    text: str
    at: int
    end: int
    value: float = 0.0
    unit: float | None = None
    spelt: bool = False
    ordinal: bool = False

    @property
    def seconds(self) -> float:
        """Return the time in seconds; a number without a unit is of seconds."""
        return self.value * (SECOND if self.unit is None else self.unit)


def plain(text: str) -> str:
    """Return a text in lower case, in NFKC form, with ASCII dashes and single spaces."""
    folded = unicodedata.normalize("NFKC", text.translate(_DASHES)).translate(_DASHES).lower()
    return " ".join("".join(c for c in folded if unicodedata.category(c) != "Cf").split())


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text that `plain` made."""
    pieces = [Token(*_kind(match), match.start(), match.end()) for match in _PIECE.finditer(text)]
    found: list[Token] = []
    place = 0
    while place < len(pieces):
        token, place = _read(pieces, place, found)
        found.append(token)
    return found


def _kind(match: re.Match[str]) -> tuple[Literal["word", "mark", "time"], str]:
    name, text = match.lastgroup, match.group()
    if name == "clock" or (name == "number" and len(text) <= MAX_DIGITS):
        return "time", text
    return ("mark" if name == "mark" else "word"), text


def _read(pieces: Sequence[Token], place: int, before: Sequence[Token]) -> tuple[Token, int]:
    """Return the token at a place and the place after it."""
    piece = pieces[place]
    if ":" in piece.text and piece.kind == "time":
        return _clock(pieces, place)
    if piece.kind == "word" and piece.text in UNITS_BEFORE:
        number, after = _number(pieces, place + 1)
        is_next_before = _number(pieces, after + 1)[0] is not None
        if number is not None and not number.ordinal and (_unit(pieces, after)[0] is None or is_next_before):
            joined = replace(number, at=piece.at, unit=UNITS[piece.text])
            return _compound(pieces, joined, after, before)
    if (whole := _fixed_phrase(pieces, place)) is not None:
        return whole
    number, after = _number(pieces, place)
    if number is None:
        return piece, place + 1
    if _text(pieces, after) in ("%", "percent") or (_text(pieces, after), _text(pieces, after + 1)) == ("per", "cent"):
        width = 2 if _text(pieces, after) == "per" else 1
        return _joined(number, pieces[after + width - 1], kind="percent"), after + width
    unit, end = _unit(pieces, after)
    if unit is None:
        return number, after
    return _compound(pieces, _joined(number, pieces[end - 1], unit=unit), end, before)


def _clock(pieces: Sequence[Token], place: int) -> tuple[Token, int]:
    """Return a clock time such as 1:02.5 or 00:01:02,500; a word if it is none, or the time of a day."""
    piece = pieces[place]
    *large, last = piece.text.replace(",", ".").split(":")
    smaller = [float(last), *map(float, large[1:])]
    if any(part >= 60 for part in smaller) or _text(pieces, place + 1) in ("am", "pm"):
        return Token("word", piece.text, piece.at, piece.end), place + 1
    value = 0.0
    for part in (*large, last):
        value = value * 60 + float(part)
    end = place + 1 if _text(pieces, place + 1) not in UNITS else place + 2
    return _joined(piece, pieces[end - 1], value=value, unit=SECOND), end


def _number(pieces: Sequence[Token], place: int) -> tuple[Token | None, int]:
    """Return the number at a place, in digits or words, without its unit, and the place after it."""
    if place >= len(pieces):
        return None, place
    piece = pieces[place]
    if piece.kind == "time":
        if ":" in piece.text:
            return None, place
        token = _joined(piece, piece, value=float(piece.text))
        if _text(pieces, place + 1) in _SUFFIXES and pieces[place + 1].at == piece.end:
            return _joined(token, pieces[place + 1], ordinal=True), place + 2
        half = [_text(pieces, place + step) for step in (1, 2, 3)] == ["and", "a", "half"]
        return (_joined(token, pieces[place + 3], value=token.value + 0.5), place + 4) if half else (token, place + 1)
    return _spelt(pieces, place)


def _spelt(pieces: Sequence[Token], place: int) -> tuple[Token | None, int]:
    """Return the number in words at a place, up to 999: "twenty-five", "one hundred and five", "third"."""
    value, after, allowed, ordinal = 0.0, place, 1000.0, False
    while not ordinal:
        word = _text(pieces, after)
        skipped = after + 1 if after > place and word in ("-", "and") else after
        word = _text(pieces, skipped)
        if word in CARDINALS and CARDINALS[word] < allowed and _joins(value, allowed, skipped > after, pieces, after):
            value, allowed = value + CARDINALS[word], 0.0
        elif word in TENS and allowed >= 100 and not (skipped > after and value < 100):
            value, allowed = value + TENS[word], 10.0
        elif word == "hundred" and 0 < value < 10 and skipped == after:
            value, allowed = value * 100, 100.0
        elif word in ORDINALS and ORDINALS[word] < allowed and _is_ordinal(pieces, skipped, alone=after == place):
            value, ordinal = value + ORDINALS[word], True
        else:
            break
        after = skipped + 1
    if after == place:
        return None, place
    if [_text(pieces, after + step) for step in (0, 1, 2)] == ["and", "a", "half"]:
        value, after = value + 0.5, after + 3
    elif _text(pieces, after) == "point" and _text(pieces, after + 1) in CARDINALS and not ordinal:
        value, after = value + CARDINALS[_text(pieces, after + 1)] / 10, after + 2
    first, last = pieces[place], pieces[after - 1]
    return _joined(first, last, kind="time", value=value, spelt=True, ordinal=ordinal), after


def _joins(value: float, allowed: float, linked: bool, pieces: Sequence[Token], after: int) -> bool:
    """Return whether a number below twenty may follow what was read: "twenty-five", "hundred and five"."""
    if not linked:
        return allowed > 0
    return value >= 100 if _text(pieces, after) == "and" else allowed == 10


def _is_ordinal(pieces: Sequence[Token], place: int, *, alone: bool) -> bool:
    """Return whether an ordinal's word is one: before a unit or in a pair; for "second", "the" must precede a pair."""
    if not alone:
        return True
    following, before = _text(pieces, place + 1), _text(pieces, place - 1)
    paired = following in ("and", "to", "through", "-", "until", "till")
    return following in UNITS or (paired and (pieces[place].text != "second" or before == "the"))


def _unit(pieces: Sequence[Token], place: int) -> tuple[float | None, int]:
    """Return the unit at a place, which a hyphen or a dot may join with its number, and the place after it."""
    hyphen = _text(pieces, place) == "-" and pieces[place].at == pieces[place - 1].end
    at = place + 1 if hyphen else place
    if (word := _text(pieces, at)) not in UNITS:
        return None, place
    dotted = _text(pieces, at + 1) == "." and word in ("s", "sec", "secs", "min", "mins", "hr", "hrs")
    is_dot = dotted and place + 2 < len(pieces) and pieces[at + 1].at == pieces[at].end
    return UNITS[word], at + 2 if is_dot and _text(pieces, at + 2) in _AFTER_DOT else at + 1


_AFTER_DOT = frozenset({"to", "-", "and", "until", "till", ",", *"0123456789"})


def _compound(pieces: Sequence[Token], token: Token, place: int, before: Sequence[Token]) -> tuple[Token, int]:
    """Return a time with the smaller units that follow it: "1 min 5 s", "two minutes and five seconds"."""
    while (token.unit or 0) >= MINUTE and not token.ordinal:
        linked = place + 1 if _text(pieces, place) in ("and", ",") else place
        if _text(pieces, place) == "and" and _is_between(before) and not _another_and(pieces, linked):
            return token, place
        if _text(pieces, linked) in UNITS_BEFORE:
            smaller, after = _number(pieces, linked + 1)
            unit, end = UNITS[_text(pieces, linked)], after
        else:
            smaller, after = _number(pieces, linked)
            unit, end = _unit(pieces, after)  # type: ignore[assignment]
        if smaller is None or smaller.ordinal:
            return token, place
        if unit is None and linked == place and token.unit == MINUTE and smaller.value < 60:
            unit, end = SECOND, after  # "1 min 5", "one minute thirty"
        if unit is None or unit >= (token.unit or 0):
            return token, place
        total = token.seconds + smaller.value * unit
        token, place = _joined(token, pieces[end - 1], value=total / unit, unit=unit), end
    return token, place


def _is_between(before: Sequence[Token]) -> bool:
    """Return whether the last words before a time are "between (the)", so that the next "and" parts two times."""
    return any(token.text in ("between", "betwixt") for token in before[-3:])


def _another_and(pieces: Sequence[Token], place: int) -> bool:
    """Return whether an "and" follows the next time."""
    return any(_text(pieces, place + step) == "and" for step in range(1, 4))


def _fixed_phrase(pieces: Sequence[Token], place: int) -> tuple[Token, int] | None:
    """Return "half a minute", "a minute (and a half)" or "1'02\\"" at a place."""
    words = [_text(pieces, place + step) for step in range(5)]
    if words[0] == "half" and words[1] in ("a", "an") and words[2] in UNITS:
        return _joined(pieces[place], pieces[place + 2], kind="time", value=0.5, unit=UNITS[words[2]]), place + 3
    if words[0] in ("a", "an", "one") and words[1] in ("second", "minute", "hour"):
        unit = UNITS[words[1]]
        if words[2:5] == ["and", "a", "half"]:
            return _joined(pieces[place], pieces[place + 4], kind="time", value=1.5, unit=unit), place + 5
        token = _joined(pieces[place], pieces[place + 1], kind="time", value=1.0, unit=unit)
        return _compound(pieces, token, place + 2, pieces[max(place - 3, 0) : place])
    if pieces[place].kind == "time" and words[1] == "'" and words[3] in ('"', "'") and words[2].isdecimal():
        width = 5 if words[3:5] == ["'", "'"] else 4
        value = 60 * float(words[0]) + float(words[2])
        return _joined(pieces[place], pieces[place + width - 1], value=value, unit=SECOND), place + width
    return None


def _text(pieces: Sequence[Token], place: int) -> str:
    return pieces[place].text if 0 <= place < len(pieces) else ""


def _joined(first: Token, last: Token, **changed: object) -> Token:
    """Return a token from the start of one to the end of another."""
    values = {"kind": first.kind, "value": first.value, "unit": first.unit, "spelt": first.spelt}
    fields = values | {"ordinal": first.ordinal} | changed
    return Token(text="", at=first.at, end=last.end, **fields)  # type: ignore[arg-type]
