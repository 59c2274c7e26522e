"""Plots of what can be seen at some moment: whether, what, where, what for an instant, who touched or hid whom."""

from aviot_lab.world.paths import Glide, Jumps, bulge
from aviot_lab.world.scene import Actor, Evidence
from aviot_lab.world.stage import Stage, place
from aviot_lab.world.story import LARGE, MEDIUM, SMALL, WINDOW, Story, actor, texture_for, tilt
from aviot_lab.world.words import COLOUR_NAMES, QUADRANTS, SHAPES, YES_NO

SHOWN = (0.12, 0.35, 4)  # of the video, and frames at least, that something is there which can be seen in one frame
FLASH = 0.28  # radius of what flashes up: more than half of the frame across
PASSING_ASIDE = 0.03  # how far off the line each of two passes, so that the hidden one is not hidden wholly
OUTWARD = 0.025  # how far what may be touched stands off its cell's middle
OVERLAP = 0.03  # of two that touch


def existence(stage: Stage) -> Story:
    """Was there a red star? One of that colour and one of that shape are there either way."""
    answer = stage.draws.pick(YES_NO)
    shape, other_shape, third_shape = stage.shapes(3)
    colour, other_colour, third_colour = stage.draws.sample(stage.colours, 3)
    texture = texture_for(stage, (shape, colour))
    asked = (shape, colour) if answer == "yes" else (third_shape, third_colour)
    looks = (asked, (shape, other_colour), (other_shape, colour))
    windows = [stage.window(*SHOWN) for _ in looks]
    actors = tuple(
        actor(stage, shape, colour, texture, Jumps(((0, stage.spot(cell)),)), window)
        for (shape, colour), cell, window in zip(looks, stage.cells(3), windows, strict=True)
    )
    return Story(
        actors=actors,
        answer=answer,
        candidates=YES_NO,
        slots={"shape": shape, "colour": colour},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *windows[0]),) if answer == "yes" else (),
        subjects=(0, 1, 2),
    )


def colour(stage: Stage) -> Story:
    """What colour was the star?"""
    shape, colour = stage.shape(), stage.draws.pick(stage.colours)
    texture = texture_for(stage, (shape, colour))
    window = stage.window(*SHOWN)
    shown = actor(stage, shape, colour, texture, Jumps(((0, stage.spot(stage.cells(1)[0])),)), window)
    return Story(
        actors=(shown,),
        answer=colour,
        candidates=COLOUR_NAMES,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def shape(stage: Stage) -> Story:
    """What shape was the red object? Its colour was set aside: nothing else has it."""
    colour = stage.set_aside
    if colour is None:
        raise ValueError("a plot that names an object by its colour needs one: call stage.set_colour_aside() first")
    shape = stage.shape()
    texture = texture_for(stage, (shape, colour))
    window = stage.window(*SHOWN)
    shown = actor(stage, shape, colour, texture, Jumps(((0, stage.spot(stage.cells(1)[0])),)), window)
    return Story(
        actors=(shown,),
        answer=shape,
        candidates=SHAPES,
        slots={"colour": colour},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def where(stage: Stage) -> Story:
    """In which quarter of the picture was the star?"""
    answer = stage.draws.pick(QUADRANTS)
    shape, colour = stage.shape(), stage.draws.pick(stage.colours)
    texture = texture_for(stage, (shape, colour))
    window = stage.window(*SHOWN)
    shown = actor(stage, shape, colour, texture, Jumps(((0, stage.spot(stage.cell_in(answer))),)), window)
    return Story(
        actors=(shown,),
        answer=answer,
        candidates=QUADRANTS,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def brief(stage: Stage) -> Story:
    """Which shape flashed up? It is there for one or two frames, before everything else."""
    shape, colour = stage.shape(), stage.draws.pick(stage.colours)
    texture = texture_for(stage, (shape, colour))
    length = stage.draws.between(1, 2)
    start = stage.draws.between(1, stage.frames - length - 1)
    spot = stage.draws.uniform(0.42, 0.58), stage.draws.uniform(0.42, 0.58)
    flash = Actor(
        shape=shape,
        colour=((0, colour),),
        texture=texture,
        size=((0, FLASH),),
        path=Jumps(((0, spot),)),
        visible=((start, start + length),),
        tilt=tilt(stage.draws),
        front=True,
    )
    return Story(
        actors=(flash,),
        answer=shape,
        candidates=SHAPES,
        slots={},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, start, start + length),),
    )


def touched(stage: Stage) -> Story:
    """Which of its four neighbours did the star touch?"""
    shape, *others = stage.shapes(5)
    middle, *around = stage.plus()
    colours = [stage.draws.pick(stage.colours) for _ in range(5)]
    texture = texture_for(stage, (shape, colours[0]))
    which = stage.draws.below(4)
    window = stage.window(*WINDOW)
    home = place(middle)
    towards = [(place(cell)[0] - home[0], place(cell)[1] - home[1]) for cell in around]
    reach = 1 + (OUTWARD - SMALL - MEDIUM + OVERLAP) / 0.25  # of the way to a neighbour's cell
    goal = home[0] + reach * towards[which][0], home[1] + reach * towards[which][1]
    leave, arrive, part, back = stage.moments(window, 4, 2)
    stops = ((leave, home), (arrive, goal), (part, goal), (back, home))
    mover = actor(stage, shape, colours[0], texture, Glide(stops), window, SMALL)
    targets = tuple(
        actor(stage, other, colour, texture, Jumps(((0, _outward(home, way)),)), window, MEDIUM)
        for other, colour, way in zip(others, colours[1:], towards, strict=True)
    )
    return Story(
        actors=(mover, *targets),
        answer=others[which],
        candidates=tuple(others),
        slots={"shape": shape},
        parts=(shape, colours[0], texture),
        evidence=(Evidence(0, arrive, part + 1), Evidence(1 + which, arrive, part + 1)),
        subjects=(0, 1, 2, 3, 4),
    )


def _outward(home: tuple[float, float], way: tuple[float, float]) -> tuple[float, float]:
    share = 1 + OUTWARD / 0.25
    return home[0] + share * way[0], home[1] + share * way[1]


def passing(stage: Stage) -> Story:
    """Which of two that cross was in front?"""
    shapes = stage.shapes(2)
    texture = texture_for(stage, shapes)
    ends = [place(cell) for cell in stage.line(3)]
    window = stage.window(*WINDOW)
    first, last = window[0], window[1] - 1
    aside = stage.draws.pick((-PASSING_ASIDE, PASSING_ASIDE))
    actors = []
    for shape, (start, end) in zip(shapes, ((ends[0], ends[2]), (ends[2], ends[0])), strict=True):
        stops = tuple(
            (first + share * (last - first), bulge(start, end, share, aside)) for share in (0, 0.25, 0.5, 0.75, 1)
        )
        colour = stage.draws.pick(stage.colours)
        actors.append(actor(stage, shape, colour, texture, Glide(stops), window, LARGE))
    named = stage.draws.shuffled((0, 1))
    middle, reach = (first + last) / 2, 0.2 * (last - first)
    evidence = tuple(Evidence(i, int(middle - reach), int(middle + reach) + 1) for i in (0, 1))
    return Story(
        actors=tuple(actors),
        answer=shapes[1],  # the later actor is before the earlier
        candidates=tuple(shapes[i] for i in named),
        slots={"first": shapes[named[0]], "second": shapes[named[1]]},
        parts=(*sorted(shapes), texture),
        evidence=evidence,
        subjects=tuple(named),
    )
