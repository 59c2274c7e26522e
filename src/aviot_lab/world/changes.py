"""Plots about changes: how often, what, into what, when, in which order. No single frame shows the answer."""

from dataclasses import replace

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, Evidence, Jumps, Span
from aviot_lab.world.layout import Layout
from aviot_lab.world.story import MEDIUM, WINDOW, Story, actor, around, changing_actor, steps, texture_for
from aviot_lab.world.words import CHANGES, NOTHING, NUMBERS, ORDERS, PHRASES, QUARTERS, YES_NO, completing


def count(layout: Layout) -> Story:
    """Make a plot for "How many times did the star change its colour?"."""
    return _repeated(layout, "colour")


def repetition(layout: Layout) -> Story:
    """Make a plot for "How many times did the star jump from one of its two places to the other?"."""
    return _repeated(layout, "place")


def _repeated(layout: Layout, change: str) -> Story:
    number = layout.draws.between(1, len(NUMBERS))
    shape = layout.shape()
    texture = texture_for(layout, (shape,))
    window = layout.window(*WINDOW)
    moments = layout.moments(window, number, _gap(window, len(NUMBERS)))
    return Story(
        actors=(changing_actor(layout, shape, window, {change: moments}, texture),),
        answer=NUMBERS[number - 1],
        candidates=NUMBERS,
        slots={"shape": shape},
        parts=(shape, texture),
        evidence=tuple(around(moment, window) for moment in moments),
    )


def changed(layout: Layout) -> Story:
    """Make a plot for "What changed about the star: its colour, its size, its place or nothing?"."""
    candidates = (*CHANGES, NOTHING)
    answer = layout.draws.pick(candidates)
    shape = layout.shape()
    texture = texture_for(layout, (shape,))
    window = layout.window(*WINDOW)
    moment = layout.moments(window, 1, _gap(window, 2))[0]
    return Story(
        actors=(changing_actor(layout, shape, window, {answer: (moment,)}, texture),),
        answer=answer,
        candidates=candidates,
        slots={"shape": shape},
        parts=(shape, texture),
        evidence=(around(moment, window),) if answer != NOTHING else (Evidence(0, *window),),
    )


def became(layout: Layout) -> Story:
    """Make a plot for "What colour did the red star turn into?"

    Five stars exchange their colours, so every frame shows all five.
    """
    shape = layout.shape()
    colours = layout.draws.sample(layout.colours, 5)
    start, *others = colours
    texture = texture_for(layout, (shape, start))
    answer = layout.draws.pick(others)
    rest = layout.draws.shuffled([colour for colour in colours if colour != answer])
    window = layout.window(*WINDOW)
    moment = layout.moments(window, 1, _gap(window, 2))[0]
    turns = layout.draws.shuffled(list(zip(colours, (answer, *rest), strict=True)))
    actors = tuple(
        replace(
            actor(layout, shape, before, texture, Jumps(((0, layout.spot(cell)),)), window, MEDIUM),
            colour=steps((moment,), (before, after)),
        )
        for (before, after), cell in zip(turns, layout.cells(5), strict=True)
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


def when(layout: Layout) -> Story:
    """Make a plot for "In which quarter of the video did the star change its colour, its size or its place?"."""
    quarter = layout.draws.below(4)
    change = layout.draws.pick(CHANGES)
    shape = layout.shape()
    texture = texture_for(layout, (shape, change))
    window = (0, layout.frames)
    margin = max(1, layout.frames // 24)  # distance from the boundary of a quarter
    low, high = layout.frames * quarter / 4, layout.frames * (quarter + 1) / 4
    moment = layout.draws.between(int(low) + margin, int(high) - margin)
    infinitive, past = PHRASES[change]
    return Story(
        actors=(changing_actor(layout, shape, window, {change: (moment,)}, texture),),
        answer=QUARTERS[quarter],
        candidates=QUARTERS,
        slots={"shape": shape, "change": infinitive, "changed": past},
        parts=(shape, change, texture),
        evidence=(around(moment, window),),
    )


def order(layout: Layout) -> Story:
    """Make a plot for "Did the star change its colour before or after the ring jumped to another place?"."""
    answer = layout.draws.pick(ORDERS)
    changes = [layout.draws.pick(CHANGES) for _ in range(2)]
    first = layout.shape()
    second = layout.shape(completing(layout.split, (first, *changes), SHAPES))
    window = layout.window(*WINDOW)
    moments = layout.moments(window, 2, _gap(window, 2))
    if answer == "after":
        moments.reverse()
    actors = tuple(
        changing_actor(layout, shape, window, {change: (moment,)})
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


def neighbour(layout: Layout) -> Story:
    """Make a plot for "What about the star changed right before, or right after, its colour did?"

    The answer may be that nothing did.
    """
    asked, side = layout.draws.pick(CHANGES), layout.draws.pick(ORDERS)
    shape = layout.shape(completing(layout.split, (asked, side), SHAPES))
    sequence = layout.draws.shuffled(CHANGES)
    window = layout.window(*WINDOW)
    moments = layout.moments(window, len(CHANGES), _gap(window, len(CHANGES)))
    at = sequence.index(asked)
    near = at + (1 if side == "after" else -1)
    return Story(
        actors=(changing_actor(layout, shape, window, {c: (m,) for c, m in zip(sequence, moments, strict=True)}),),
        answer=sequence[near] if 0 <= near < len(CHANGES) else NOTHING,
        candidates=(*(change for change in CHANGES if change != asked), NOTHING),
        slots={"shape": shape, "asked": asked, "side": side},
        parts=(shape, asked, side),
        evidence=(around(moments[at], window), Evidence(0, *window)),  # no further change: the whole window shows it
    )


def distant(layout: Layout) -> Story:
    """Make a plot for "Did the star at the end have the colour of the star at the beginning?"

    The star is invisible in between.
    """
    answer = layout.draws.pick(YES_NO)
    shape = layout.shape()
    texture = texture_for(layout, (shape,))
    lengths = [max(3, round(layout.frames * layout.draws.uniform(0.12, 0.25))) for _ in range(2)]
    spans = ((0, lengths[0]), (layout.frames - lengths[1], layout.frames))
    middle = layout.frames // 2
    changes = {"colour": (middle,) if answer == "no" else (), "place": (middle,) if layout.draws.below(2) else ()}
    star = changing_actor(layout, shape, (0, layout.frames), changes, texture)
    return Story(
        actors=(replace(star, visible=spans),),
        answer=answer,
        candidates=YES_NO,
        slots={"shape": shape},
        parts=(shape, texture),
        evidence=tuple(Evidence(0, *span) for span in spans),
    )


def _gap(window: Span, changes: int) -> int:
    """Return the least number of frames between changes: a part of the window, at least two."""
    return max(2, (window[1] - window[0]) // (2 * (changes + 1)))
