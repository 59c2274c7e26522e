"""Read spans of time from a reply as people and models write them.

`tokens` cuts the text; here the words between two times decide whether these are the start and the end of one span.
A reply may name several spans, which are returned in its order. Moments count only where no span is named, and numbers
without a unit only where nothing with one is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from aviot.grounding.spans import Span, bounded
from aviot.grounding.tokens import UNITS, Token, plain, tokens


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


START = _words(
    "start starts started starting begin begins began begun beginning commence commences commencing from since "
    "between onset opens"
)
END = _words(
    "end ends ended ending finish finishes finished finishing stop stops stopped stopping conclude concludes "
    "concluding concluded terminates until till"
)
UNTIL = frozenset({"until", "till", "til"})
TO = UNTIL | {"to", "through", "thru"}
RANGE = TO | {"-", "->", "=>", "-->", "==>", "..", "...", "~"}
_LENGTHS = (["for"], ["lasts"], ["lasting"], ["lasted"], ["duration"])
BEFORE_A_LENGTH = frozenset({"about", "around", "approximately", "roughly", "only", "just", "the", "of", "is", ":"})
JOINS = frozenset({",", ";", "and", "or", "&", "then", "also", "again", "|"})
FILLERS = _words(
    "the a an mark marks point timestamp timestamps time about around approximately approx roughly nearly almost just "
    "exactly at in into of video clip footage somewhere up all way right s t it continues continuing goes going on "
    "runs running lasts lasting and min sec seconds minutes ~ < > ( ) [ ] * _ ` \" ' , / \\ = @ : 's"
)
AROUND_NUMBERS = FILLERS | {".", "!", ";", "{", "}"}
VIDEO = frozenset({"video", "clip", "footage", "recording", "movie", "film", "sequence", "way", "duration", "runtime"})
NOT_TIMES = _words(
    "frame frames option options question scene step steps page chapter number no # top part score every per each "
    "version shot shots id"
)
AFTER_A_BARE_RANGE = _words(
    "when while as where during and or in at is was the a an he she they it we i with which that because if so then "
    "inside into of on before after approximately roughly about but there"
)
EDGES = {**dict.fromkeys(("beginning", "start", "outset", "opening"), 0.0)}
EDGES |= dict.fromkeys(("end", "ending", "finish", "conclusion", "close"), 1.0)
BEFORE_AN_EDGE = frozenset({"from", "since", "to", "until", "till", "til", "through", "between", "and", "-"})
PARTS = {"half": 2, "third": 3, "quarter": 4}
ORDER = {"first": 0, "second": 1, "middle": 1, "third": 2, "fourth": 3}
_WORD = re.compile("[a-z]+")
MAX_SPANS = 1000
"""Spans that are read from one text at most."""


@dataclass(frozen=True)
class Found:
    """A span as it was found: `sure` if a unit, a clock time or its words show that these are times."""

    start: float
    end: float
    sure: bool
    joined: bool = False  # to the span before, by a comma or "and"


def read_spans(text: str, duration: float | None = None, *, bare: bool = True) -> tuple[Span, ...]:
    """Return the spans of time, in seconds, that a reply names, in its order and each once; () if it names none.

    They lie within [0, `duration`]; percentages, "the end" and the like are read only if it is given. A moment is a
    span of no length. Text up to a closing </think> is not read. Without `bare`, numbers that nothing shows to be times
    are not read: "7" may be a count.
    """
    cut = plain(text.rpartition("</think>")[2])
    cut = cut.rpartition("<answer>")[2].partition("</answer>")[0] or cut
    read = _with_edges(_without_false(tokens(cut), duration), duration)
    times = [place for place, token in enumerate(read) if token.kind == "time"]
    spans = _propagated(_ranges(read, times))
    if not any(span.sure for span in spans):
        spans = _open_ended(read, times, duration) or spans or _parts(cut, duration) or _moments(read, times)
    limited = [bounded(one.start, one.end, duration) for one in spans[:MAX_SPANS] if bare or one.sure]
    return tuple(dict.fromkeys(span for span in limited if span is not None))


def _without_false(read: Sequence[Token], duration: float | None) -> list[Token]:
    """Return the tokens; numbers that count something else become words, percentages of the video become times."""
    kept: list[Token] = []
    for place, token in enumerate(read):
        before = kept[-1].text if kept else ""
        if token.kind == "percent":
            following = {one.text for one in read[place + 1 : place + 8]}
            if duration is not None and following & (VIDEO | {"through"}):
                token = replace(token, kind="time", value=token.value / 100 * duration, unit=1.0)
            else:
                token = replace(token, kind="word")
        elif token.kind == "time":
            video_is_long = token.unit is not None and _is_length_of_video(read, place)
            of_frames = before in NOT_TIMES or (before in RANGE and len(kept) > 2 and kept[-3].text in NOT_TIMES)
            if (of_frames and token.unit is None) or before in ("every", "per", "each") or video_is_long:
                token = replace(token, kind="word")
        kept.append(token)
    return kept


def _is_length_of_video(read: Sequence[Token], place: int) -> bool:
    """Return whether a time is the video's length: "a 30-second video", "the video is 30 seconds long"."""
    after = [one.text for one in read[place + 1 : place + 3]]
    before = [one.text for one in read[max(place - 4, 0) : place]]
    is_whole = bool({"video", "clip", "footage", "movie", "recording"}.intersection(before))
    named = after[:1] in (["video"], ["clip"], ["footage"], ["movie"], ["recording"])
    return named or (is_whole and (after[:1] == ["long"] or bool({"lasts", "length", "duration"}.intersection(before))))


def _with_edges(read: Sequence[Token], duration: float | None) -> list[Token]:
    """Return the tokens with "from the beginning" and "until the end (of the video)" as times."""
    found = list(read)
    for place, token in enumerate(read):
        if token.text not in EDGES or (EDGES[token.text] and duration is None):
            continue
        at = place
        while at > 0 and place - at < 3 and read[at - 1].text in ("the", "very", "video's", "clip's"):
            at -= 1
        if at == 0 or read[at - 1].text not in BEFORE_AN_EDGE:
            continue
        after = [one.text for one in read[place + 1 : place + 4]]
        of_video = after[:1] == ["of"] and bool(VIDEO.intersection(after))
        if of_video or not after or after[0] in (*RANGE, "and", ",", ".", ";", ")"):
            value = EDGES[token.text] * (duration or 0.0)
            found[place] = replace(token, kind="time", text="", value=value, unit=1.0)
    return found


def _ranges(read: Sequence[Token], times: Sequence[int]) -> list[Found]:
    """Return the spans whose start and end are two neighbouring times, or a time and a length."""
    spans: list[Found] = []
    open_at: int | None = None  # a time that may be the start of a span, or the end where it is named first
    last_end = -1
    alone = len(times) == 2 and all(one.text in AROUND_NUMBERS for place, one in enumerate(read) if place not in times)
    bounds = [-1, *times]
    for before, now in pairwise(bounds):
        gap = read[before + 1 : now]
        first = read[open_at] if open_at is not None and open_at == before else None
        if first is not None and _makes_span(read, before, gap, now, alone=alone):
            joined = bool(spans) and _is_joined(read, last_end, before)
            spans.append(_span(first, read[now], gap, joined=joined))
            open_at, last_end = None, now
        elif first is not None and _is_length(gap, read, now):
            spans.append(Found(first.seconds, first.seconds + read[now].seconds, sure=True))
            open_at, last_end = None, now
        else:
            open_at = None if _is_length(gap, read, now) or _is_plain_count(read, now) else now
    return spans


def _is_plain_count(read: Sequence[Token], place: int) -> bool:
    """Return whether a number in words has no unit and none to come: "one person"."""
    token = read[place]
    after = read[place + 1].text if place + 1 < len(read) else ""
    return token.spelt and token.unit is None and after not in RANGE and after not in ("and", ",")


def _makes_span(read: Sequence[Token], before: int, gap: Sequence[Token], now: int, *, alone: bool) -> bool:
    """Return whether the words between two times make them the ends of one span."""
    first, last = read[before], read[now]
    words = [one.text for one in gap]
    if (first.spelt or last.spelt) and last.unit is None:
        return False
    if not _are_times(read, before, now):
        return False
    kinds = [word for word in words if word in RANGE]
    tight = all(word in FILLERS or word in RANGE for word in words)
    if kinds and tight:
        return True
    roles = _role(read, before), _last_role(words)
    ended = any(word in (".", "!", "?") for word in words)
    if roles == ("start", "end") or (roles == ("end", "start") and not {"from", "between", "since"} & set(words)):
        return not ended or _are_labels(words)
    if not ended and _ends_with(words, TO if roles[0] == "start" else UNTIL):
        return True
    if "and" in words and tight and _introduced(read, before, ("between", "betwixt")):
        return True
    comma = words in ([","], ['"', ",", '"'], ["'", ",", "'"], [";"])
    return (comma and (alone or _bracketed(read, before, now))) or (alone and not words)


def _are_times(read: Sequence[Token], before: int, now: int) -> bool:
    """Return whether two numbers without units can be times by the word that follows them."""
    if read[before].unit is not None or read[now].unit is not None:
        return True
    after = read[now + 1] if now + 1 < len(read) else None
    return after is None or after.kind != "word" or after.text in AFTER_A_BARE_RANGE or after.text in END


def _are_labels(words: Sequence[str]) -> bool:
    """Return whether a sentence ends between two times and the next starts with the end's name: "… End: 9"."""
    following = words[max(place for place, word in enumerate(words) if word in (".", "!", "?")) + 1 :]
    return any(word in START | END for word in following)


def _role(read: Sequence[Token], place: int) -> str | None:
    """Return whether the words before a time, up to the time before it, make it a start or an end."""
    at = place
    while at > 0 and read[at - 1].kind != "time" and place - at < 24:
        at -= 1
    return _last_role([one.text for one in read[at:place]])


def _last_role(words: Sequence[str]) -> str | None:
    """Return the role that the last of some words gives to the time after them."""
    for word in reversed(words):
        if word in START:
            return "start"
        if word in END:
            return "end"
    return None


def _ends_with(words: Sequence[str], wanted: frozenset[str]) -> bool:
    """Return whether words end with a wanted one and fillers: "when he enters, to about"."""
    for word in reversed(words):
        if word in wanted:
            return True
        if word not in FILLERS:
            return False
    return False


def _introduced(read: Sequence[Token], place: int, words: Sequence[str]) -> bool:
    """Return whether one of the words comes before a time with only fillers between."""
    at = place - 1
    while at >= 0 and place - at < 8 and read[at].text in FILLERS and read[at].kind != "time":
        at -= 1
    return at >= 0 and read[at].text in words


def _bracketed(read: Sequence[Token], before: int, now: int) -> bool:
    """Return whether two times, which may be quoted, are all that a pair of brackets holds."""
    left, right = before - 1, now + 1
    while left > 0 and read[left].text in ("'", '"', "<", ">", "t", "="):
        left -= 1
    while right < len(read) - 1 and read[right].text in ("'", '"', "<", ">"):
        right += 1
    return (
        left >= 0 and right < len(read) and read[left].text in ("[", "(", "{") and read[right].text in ("]", ")", "}")
    )


def _is_length(gap: Sequence[Token], read: Sequence[Token], now: int) -> bool:
    """Return whether a time is a length: "for 5 seconds", "lasts about 5 s", "5 seconds long"."""
    words = [one.text for one in gap]
    while words and words[-1] in BEFORE_A_LENGTH:
        words.pop()
    following = [one.text for one in read[now + 1 : now + 2]]
    return read[now].unit is not None and (words[-1:] in _LENGTHS or following in (["long"], ["later"]))


def _span(first: Token, last: Token, gap: Sequence[Token], *, joined: bool) -> Found:
    """Return the span of two times; one without a unit takes that of the other."""
    if first.unit is None and last.unit is not None and not (last.text == "" and last.unit == 1.0 and first.spelt):
        first = replace(first, unit=last.unit)
    if last.unit is None and first.unit is not None:
        last = replace(last, unit=first.unit if first.value == first.seconds / first.unit else 1.0)
    words = {one.text for one in gap}
    named = bool(words & (END | START) - {"from", "until", "till"})
    return Found(first.seconds, last.seconds, sure=first.unit is not None or last.unit is not None or named,
                 joined=joined)  # fmt: skip


def _is_joined(read: Sequence[Token], end: int, start: int) -> bool:
    """Return whether only a comma, "and" or fillers stand between the end of one span and the start of the next."""
    between = [one.text for one in read[end + 1 : start]]
    return len(between) < 12 and all(word in JOINS | FILLERS | {"from", "between"} for word in between)


def _propagated(spans: Sequence[Found]) -> list[Found]:
    """Return the spans of which it is sure that they are times, with those joined to one; all if none is sure."""
    if not any(span.sure for span in spans):
        return list(spans)
    sure = [span.sure for span in spans]
    for order in (range(1, len(spans)), range(len(spans) - 1, 0, -1)):
        for place in order:
            if spans[place].joined and (sure[place - 1] or sure[place]):
                sure[place - 1] = sure[place] = True
    return [span for span, is_sure in zip(spans, sure, strict=True) if is_sure]


def _open_ended(read: Sequence[Token], times: Sequence[int], duration: float | None) -> list[Found]:
    """Return the spans of "until 9 s", "from 12 s on", "the first 5 seconds" and "the last minute"."""
    spans = []
    for place in times:
        seconds, before = read[place].seconds, [one.text for one in read[max(place - 3, 0) : place]]
        before = [word for word in before if word not in FILLERS or word in ("up",)]
        word = before[-1] if before else ""
        after = [one.text for one in read[place + 1 : place + 3]]
        if read[place].unit is None:
            continue
        if word in ("first", "until", "till", "before") or before[-2:] == ["up", "to"]:
            spans.append(Found(0.0, seconds, sure=True))
        elif word in ("last", "final") and duration is not None:
            spans.append(Found(duration - seconds, duration, sure=True))
        elif duration is not None and (
            word in ("after", "since")
            or after[:1] in (["onward"], ["onwards"])
            or (word == "from" and after[:1] == ["on"])
        ):
            spans.append(Found(seconds, duration, sure=True))
    return spans


def _parts(text: str, duration: float | None) -> list[Found]:
    """Return the spans of "the first minute", "the second half of the video" and "the whole video"."""
    words = _WORD.findall(text)
    for place, word in enumerate(words[:-1]):
        after = words[place + 1]
        if word == "first" and after in UNITS:
            return [Found(0.0, UNITS[after], sure=True)]
        if duration is None:
            continue
        if word in ("last", "final") and after in UNITS:
            return [Found(duration - UNITS[after], duration, sure=True)]
        if after in PARTS and word in (*ORDER, "last", "final"):
            count = PARTS[after]
            index = count - 1 if word in ("last", "final") else ORDER[word]
            if index < count and (word != "middle" or count == 3):
                return [Found(duration * index / count, duration * (index + 1) / count, sure=True)]
        if word in ("whole", "entire", "full", "throughout") and VIDEO.intersection(words[place + 1 : place + 4]):
            return [Found(0.0, duration, sure=True)]
    return []


def _moments(read: Sequence[Token], times: Sequence[int]) -> list[Found]:
    """Return single times; a number without a unit is one only if it is the whole reply or a digit after "at"."""
    alone = len(times) == 1 and all(one.text in AROUND_NUMBERS for one in read if one.kind != "time")
    found = []
    for place in times:
        token = read[place]
        at = place > 0 and read[place - 1].text in ("at", "@") and _are_times(read, place, place)
        if token.unit is not None or ((alone or at) and not token.spelt):
            is_length = _is_length(read[max(place - 4, 0) : place], read, place)
            found += [] if is_length else [Found(token.seconds, token.seconds, sure=token.unit is not None)]
    return [one for one in found if one.sure] or found
