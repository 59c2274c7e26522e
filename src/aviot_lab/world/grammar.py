"""Wording of questions: an opening and a core. Every split has all of both; a pair of them is in one split only."""

from collections.abc import Iterator, Mapping

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES, Split
from aviot_lab.world.words import (
    CHANGES,
    DIRECTIONS,
    NOTHING,
    NUMBERS,
    ORDERS,
    PHRASES,
    QUADRANTS,
    QUARTERS,
    TURNS,
    YES_NO,
    belongs,
)

OPENINGS = ("", "in this video, ", "over the whole clip, ", "look closely: ", "tell me, ")

CORES: dict[str, tuple[str, str, str, str, str]] = {
    "existence": (
        "was there a {colour} {shape} at any time?",
        "did a {colour} {shape} appear at some point?",
        "is a {colour} {shape} ever shown?",
        "could one see a {colour} {shape} at any moment?",
        "does a {colour} {shape} come up anywhere?",
    ),
    "colour": (
        "what colour was the {shape}?",
        "which colour did the {shape} have?",
        "what is the colour of the {shape}?",
        "the {shape} was of which colour?",
        "in which colour was the {shape} shown?",
    ),
    "shape": (
        "what shape was the {colour} object?",
        "which shape did the {colour} object have?",
        "what is the shape of the {colour} thing?",
        "the {colour} thing was of which shape?",
        "what kind of shape was shown in {colour}?",
    ),
    "where": (
        "where was the {shape}?",
        "in which part of the picture was the {shape}?",
        "which corner of the picture was the {shape} in?",
        "where in the picture did the {shape} appear?",
        "the {shape} was shown in which part of the picture?",
    ),
    "brief": (
        "which shape flashed up for a moment?",
        "what flashed up very briefly?",
        "a large shape was there for a moment: which one?",
        "what large shape appeared only for an instant?",
        "which shape was shown only very briefly?",
    ),
    "touched": (
        "which object did the {shape} touch?",
        "what did the {shape} bump into?",
        "which of the others was touched by the {shape}?",
        "the {shape} went over to which object?",
        "what was the object that the {shape} touched?",
    ),
    "passing": (
        "when they crossed, which was in front, the {first} or the {second}?",
        "which one passed in front of the other, the {first} or the {second}?",
        "of the {first} and the {second}, which one hid the other?",
        "was it the {first} or the {second} that passed in front?",
        "which of the two hid the other when they crossed, the {first} or the {second}?",
    ),
    "count": (
        "how many times did the {shape} change its colour?",
        "how often did the colour of the {shape} change?",
        "how many changes of colour did the {shape} go through?",
        "count the times that the {shape} changed its colour: how many?",
        "the {shape} took on a new colour how many times?",
    ),
    "repetition": (
        "how many times did the {shape} jump?",
        "how often did the {shape} jump from one place to the other?",
        "how many jumps did the {shape} make?",
        "count the jumps of the {shape}: how many?",
        "the {shape} jumped to its other place how many times?",
    ),
    "changed": (
        "what changed about the {shape}?",
        "what about the {shape} did not stay the same?",
        "which property of the {shape} changed?",
        "did the colour, the size, the place of the {shape} change, or nothing?",
        "what was different about the {shape} later on?",
    ),
    "became": (
        "what colour did the {colour} {shape} turn into?",
        "which colour did the {shape} that was {colour} at first take on?",
        "what did the colour of the {colour} {shape} become?",
        "the {shape} that started out {colour} had which colour at the end?",
        "at first one {shape} was {colour}: which colour did it have later?",
    ),
    "when": (
        "in which part of the video did the {shape} {change}?",
        "when did the {shape} {change}?",
        "in which quarter of the video did the {shape} {change}?",
        "the {shape} {changed}: in which quarter was that?",
        "at what time of the video was it that the {shape} {changed}?",
    ),
    "order": (
        "did the {first} {first_change} before or after the {second} {second_changed}?",
        "was it before or after the {second} {second_changed} that the {first} {first_changed}?",
        "the {first} {first_changed}: was that before or after the {second} {second_changed}?",
        "the {second} {second_changed}: did the {first} {first_change} before or after that?",
        "before or after the {second} {second_changed}, when was it that the {first} {first_changed}?",
    ),
    "neighbour": (
        "what about the {shape} changed right {side} its {asked} did?",
        "right {side} the {asked} of the {shape} changed, what else about it changed?",
        "the {asked} of the {shape} changed: which change came directly {side} that?",
        "which change of the {shape} was the next one {side} that of its {asked}?",
        "what was the change of the {shape} directly {side} its {asked} changed?",
    ),
    "distant": (
        "did the {shape} have the same colour at the end as at the beginning?",
        "was the {shape} at the beginning of the same colour as the {shape} at the end?",
        "is the colour of the {shape} the same in the beginning and in the end?",
        "did the {shape} come back at the end in the colour it had at the beginning?",
        "at the end, was the colour of the {shape} the one it had at the beginning?",
    ),
    "direction": (
        "in which direction did the {shape} move?",
        "which way did the {shape} go?",
        "which direction was the {shape} moving in?",
        "the {shape} moved in which direction?",
        "where was the {shape} heading, left, right, up or down?",
    ),
    "turning": (
        "did the {shape} go round clockwise or anticlockwise?",
        "in which sense did the {shape} circle, clockwise or anticlockwise?",
        "was the {shape} going round clockwise or anticlockwise?",
        "which way round did the {shape} move?",
        "the {shape} moved in a circle: clockwise or anticlockwise?",
    ),
    "following": (
        "which one followed the other, the {first} or the {second}?",
        "of the {first} and the {second}, which one was behind the other on their way?",
        "was it the {first} or the {second} that followed the other?",
        "which one came behind as they moved, the {first} or the {second}?",
        "the {first} and the {second} moved along: which one was following?",
    ),
    "swap": (
        "did the {first} and the {second} swap places?",
        "have the {first} and the {second} changed places with each other?",
        "was the {first} at the end where the {second} had been at first?",
        "did the {first} and the {second} end up in each other's place?",
        "did the {first} take the place of the {second}, and the {second} that of the {first}?",
    ),
}

LETTERS = ("A", "B", "C", "D")
CHOOSE = "Answer with the option's letter from the given choices directly."
SHORT = "Answer the question using a single word or phrase."


def wordings(split: Split) -> list[tuple[int, int]]:
    """Return the pairs of opening and core that belong to a split."""
    pairs = [(opening, core) for opening in range(len(OPENINGS)) for core in range(5)]
    return [pair for pair in pairs if belongs(split, sum(pair))]


def worded(family: str, wording: tuple[int, int], slots: Mapping[str, str]) -> str:
    """Return the question as a sentence."""
    sentence = OPENINGS[wording[0]] + CORES[family][wording[1]].format_map(slots).replace("a orange", "an orange")
    return sentence[0].upper() + sentence[1:]


def with_options(text: str, options: tuple[str, ...]) -> str:
    """Return the question with lettered options and the instruction on how to answer."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([text, *lines, CHOOSE])


def all_answers() -> tuple[str, ...]:
    """Return every answer of any family, once."""
    lists = (YES_NO, COLOUR_NAMES, SHAPES, QUADRANTS, NUMBERS, CHANGES, (NOTHING,), QUARTERS, ORDERS, DIRECTIONS, TURNS)
    return tuple(dict.fromkeys(word for words in lists for word in words))


def vocabulary() -> Iterator[str]:
    """Yield about twenty thousand texts with every word, wording and answer, for training a tokenizer.

    Every core comes with every opening, and every word in every slot.
    """
    words = all_answers()
    for family, cores in CORES.items():
        for opening in range(len(OPENINGS)):
            for core in range(len(cores)):
                for turn in range(len(SHAPES) * len(ORDERS)):
                    slots = _slots(turn, opening + core)
                    text = worded(family, (opening, core), slots)
                    yield text + "\n" + SHORT
                    yield with_options(text, tuple(words[(turn + 7 * i + core) % len(words)] for i in range(4)))
    yield from words
    yield from TEXTURES


def _slots(turn: int, shift: int) -> dict[str, str]:
    first, second = SHAPES[turn % len(SHAPES)], SHAPES[(turn + shift + 1) % len(SHAPES)]
    changes = list(PHRASES.values())
    change, other = changes[turn % len(changes)], changes[(turn + shift) % len(changes)]
    return {
        "shape": first,
        "first": first,
        "second": second,
        "colour": COLOUR_NAMES[(turn + shift) % len(COLOUR_NAMES)],
        "change": change[0],
        "changed": change[1],
        "first_change": change[0],
        "first_changed": change[1],
        "second_change": other[0],
        "second_changed": other[1],
        "asked": CHANGES[turn % len(CHANGES)],
        "side": ORDERS[(turn // len(SHAPES)) % len(ORDERS)],
    }
