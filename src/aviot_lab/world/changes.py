"""Plots of what changes: how often, what, into what, when, in which order. No single frame shows any of it."""

from dataclasses import replace

from aviot_lab.world.paths import Jumps
from aviot_lab.world.scene import Evidence, Span
from aviot_lab.world.split import completing
from aviot_lab.world.stage import Stage
from aviot_lab.world.story import MEDIUM, WINDOW, Story, actor, around, changing_actor, steps, texture_for
from aviot_lab.world.words import (
    CHANGES,
    COLOUR_NAMES,
    NOTHING,
    NUMBERS,
    ORDERS,
    PHRASES,
    QUARTERS,
    SHAPES,
    YES_NO,
)


def count(stage: Stage) -> Story:
    """How many times did the star change its colour?"""
    return _repeated(stage, "colour")


def repetition(stage: Stage) -> Story:
    """How many times did the star jump from one of its two places to the other?"""
    return _repeated(stage, "place")


def _repeated(stage: Stage, change: str) -> Story:
    number = stage.draws.between(1, len(NUMBERS))
    shape = stage.shape()
    texture = texture_for(stage, (shape,))
    window = stage.window(*WINDOW)
    moments = stage.moments(window, number, _gap(window, len(NUMBERS)))
    return Story(
        actors=(changing_actor(stage, shape, window, {change: moments}, texture),),
        answer=NUMBERS[number - 1],
        candidates=NUMBERS,
        slots={"shape": shape},
        parts=(shape, texture),
        evidence=tuple(around(moment, window) for moment in moments),
    )


def changed(stage: Stage) -> Story:
    """What changed about the star: its colour, its size, its place or nothing?"""
    candidates = (*CHANGES, NOTHING)
    answer = stage.draws.pick(candidates)
    shape = stage.shape()
    texture = texture_for(stage, (shape,))
    window = stage.window(*WINDOW)
    moment = stage.moments(window, 1, _gap(window, 2))[0]
    return Story(
        actors=(changing_actor(stage, shape, window, {answer: (moment,)}, texture),),
        answer=answer,
        candidates=candidates,
        slots={"shape": shape},
        parts=(shape, texture),
        evidence=(around(moment, window),) if answer != NOTHING else (Evidence(0, *window),),
    )


def became(stage: Stage) -> Story:
    """What colour did the red star turn into? Five stars exchange their colours, so every frame shows all five."""
    shape = stage.shape()
    colours = stage.draws.sample(stage.colours, 5)
    start, *others = colours
    texture = texture_for(stage, (shape, start))
    answer = stage.draws.pick(others)
    rest = stage.draws.shuffled([colour for colour in colours if colour != answer])
    window = stage.window(*WINDOW)
    moment = stage.moments(window, 1, _gap(window, 2))[0]
    turns = stage.draws.shuffled(list(zip(colours, (answer, *rest), strict=True)))
    actors = tuple(
        replace(
            actor(stage, shape, before, texture, Jumps(((0, stage.spot(cell)),)), window, MEDIUM),
            colour=steps((moment,), (before, after)),
        )
        for (before, after), cell in zip(turns, stage.cells(5), strict=True)
    )
    return Story(
        actors=actors,
        answer=answer,
        candidates=tuple(colour for colour in COLOUR_NAMES if colour in others),
        slots={"shape": shape, "colour": start},
        parts=(shape, start, texture),
        evidence=(around(moment, window, turns.index((start, answer))),),
        subjects=(0, 1, 2, 3, 4),
    )


def when(stage: Stage) -> Story:
    """In which quarter of the video did the star change its colour, its size or its place?"""
    quarter = stage.draws.below(4)
    change = stage.draws.pick(CHANGES)
    shape = stage.shape()
    texture = texture_for(stage, (shape, change))
    window = (0, stage.frames)
    margin = max(1, stage.frames // 24)  # away from where one quarter becomes the next
    low, high = stage.frames * quarter / 4, stage.frames * (quarter + 1) / 4
    moment = stage.draws.between(int(low) + margin, int(high) - margin)
    infinitive, past = PHRASES[change]
    return Story(
        actors=(changing_actor(stage, shape, window, {change: (moment,)}, texture),),
        answer=QUARTERS[quarter],
        candidates=QUARTERS,
        slots={"shape": shape, "change": infinitive, "changed": past},
        parts=(shape, change, texture),
        evidence=(around(moment, window),),
    )


def order(stage: Stage) -> Story:
    """Did the star change its colour before or after the ring jumped to another place?"""
    answer = stage.draws.pick(ORDERS)
    changes = [stage.draws.pick(CHANGES) for _ in range(2)]
    first = stage.shape()
    second = stage.shape(completing(stage.split, (first, *changes), SHAPES))
    window = stage.window(*WINDOW)
    moments = stage.moments(window, 2, _gap(window, 2))
    if answer == "after":
        moments.reverse()
    actors = tuple(
        changing_actor(stage, shape, window, {change: (moment,)})
        for shape, change, moment in zip((first, second), changes, moments, strict=True)
    )
    slots = {"first": first, "second": second}
    slots |= {"first_change": PHRASES[changes[0]][0], "first_changed": PHRASES[changes[0]][1]}
    slots |= {"second_change": PHRASES[changes[1]][0], "second_changed": PHRASES[changes[1]][1]}
    return Story(
        actors=actors,
        answer=answer,
        candidates=ORDERS,
        slots=slots,
        parts=(first, changes[0], second, changes[1]),
        evidence=tuple(around(moment, window, i) for i, moment in enumerate(moments)),
        subjects=(0, 1),
    )


def neighbour(stage: Stage) -> Story:
    """What about the star changed right before, or right after, its colour did? Perhaps nothing more."""
    asked, side = stage.draws.pick(CHANGES), stage.draws.pick(ORDERS)
    shape = stage.shape(completing(stage.split, (asked, side), SHAPES))
    sequence = stage.draws.shuffled(CHANGES)
    window = stage.window(*WINDOW)
    moments = stage.moments(window, len(CHANGES), _gap(window, len(CHANGES)))
    at = sequence.index(asked)
    near = at + (1 if side == "after" else -1)
    return Story(
        actors=(changing_actor(stage, shape, window, {c: (m,) for c, m in zip(sequence, moments, strict=True)}),),
        answer=sequence[near] if 0 <= near < len(CHANGES) else NOTHING,
        candidates=(*(change for change in CHANGES if change != asked), NOTHING),
        slots={"shape": shape, "asked": asked, "side": side},
        parts=(shape, asked, side),
        evidence=(around(moments[at], window), Evidence(0, *window)),  # that nothing else came takes all of it
    )


def distant(stage: Stage) -> Story:
    """Did the star at the end have the colour of the star at the beginning? It is away in between."""
    answer = stage.draws.pick(YES_NO)
    shape = stage.shape()
    texture = texture_for(stage, (shape,))
    lengths = [max(3, round(stage.frames * stage.draws.uniform(0.12, 0.25))) for _ in range(2)]
    spans = ((0, lengths[0]), (stage.frames - lengths[1], stage.frames))
    middle = stage.frames // 2
    changes = {"colour": (middle,) if answer == "no" else (), "place": (middle,) if stage.draws.below(2) else ()}
    star = changing_actor(stage, shape, (0, stage.frames), changes, texture)
    return Story(
        actors=(replace(star, visible=spans),),
        answer=answer,
        candidates=YES_NO,
        slots={"shape": shape},
        parts=(shape, texture),
        evidence=tuple(Evidence(0, *span) for span in spans),
    )


def _gap(window: Span, changes: int) -> int:
    """Frames between changes: a part of the window, and never less than two."""
    return max(2, (window[1] - window[0]) // (2 * (changes + 1)))
