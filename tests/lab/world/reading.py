"""What a question asks, by its words alone: independently of the sentences that it was made from."""

import re

from aviot.scenes.scene import COLOUR_NAMES, SHAPES
from aviot_lab.world.words import CHANGES

NAMED = {  # of each family: words of which one must be there
    "existence": "at any|at some point|ever|anywhere",
    "colour": "colour",
    "shape": "shape",
    "where": "where|part|corner",
    "brief": "moment|brief|instant",
    "touched": "touch|bump|went over",
    "passing": "front|hid",
    "count": "colour",
    "repetition": "jump",
    "changed": "change|same|different",
    "became": "turn into|take on|become|at the end|later",
    "when": "when|part|quarter|time",
    "order": "before or after",
    "neighbour": "right|directly|next",
    "distant": "beginning",
    "direction": "direction|way|heading",
    "turning": "clockwise|way round",
    "following": "follow|behind",
    "swap": "place|at the end where",
}
CHANGE = r"(?:change(?:d)? its (colour|size)|(jump)(?:ed)? to another place)"


def read(family: str, text: str) -> dict[str, str]:
    """Whom and what the text names, in the words of `solver`."""
    text = text.lower().replace("in a circle", "round")  # no object
    assert re.search(NAMED[family], text), f"{family} is not asked about in {text!r}"
    colours = re.findall(rf"\b({'|'.join(COLOUR_NAMES)})\b", text)
    before = "|".join(("the", "a", "one", *COLOUR_NAMES))
    shapes = list(dict.fromkeys(re.findall(rf"\b(?:{before}) ({'|'.join(SHAPES)})\b", text)))
    if family == "order":
        return _order(text, shapes)
    found = dict(zip(("first", "second") if len(shapes) == 2 else ("shape",), shapes, strict=False))
    if colours:
        (found["colour"],) = colours
    if family == "when":
        ((look, jump),) = re.findall(CHANGE, text)
        found["change"] = look or ("place" if jump else "")
    if family == "neighbour":
        (found["side"],) = re.findall(r"\b(before|after)\b", text)
        (found["asked"],) = re.findall(rf"\b({'|'.join(CHANGES)})\b", text)
    return found


def _order(text: str, shapes: list[str]) -> dict[str, str]:
    """Before or after what: the event that is named right then, or the one that `that` points back to."""
    named = re.search(r"before or after the (\w+)", text)
    reference = named[1] if named else shapes[0]
    assert named or "before or after that" in text
    (subject,) = [shape for shape in shapes if shape != reference]
    events = {shape: look or "place" for shape, look, _ in re.findall(rf"the (\w+) {CHANGE}", text)}
    return {
        "first": subject,
        "first_change": events[subject],
        "second": reference,
        "second_change": events[reference],
    }
