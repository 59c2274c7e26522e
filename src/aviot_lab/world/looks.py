"""Plots about what some frames show: existence, colour, shape, place, flashes, touching and passing."""

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, Actor, Evidence, Glide, Jumps
from aviot_lab.world.layout import Layout, place
from aviot_lab.world.story import LARGE, MEDIUM, SMALL, WINDOW, Story, actor, bulge, texture_for, tilt
from aviot_lab.world.words import QUADRANTS, YES_NO

SHOWN = (0.12, 0.35, 4)  # smallest and largest share of the video that an object is visible, and its least frames
FLASH = 0.28  # radius of an object that flashes up: more than half of the frame wide
PASSING_ASIDE = 0.03  # distance from the line when two objects pass, so that neither is hidden completely
OUTWARD = 0.025  # distance of objects that may be touched from their cells' middles
OVERLAP = 0.03  # of two objects that touch


def existence(layout: Layout) -> Story:
    """Make a plot for "Was there a red star?"

    Another object of that colour and another of that shape exist either way.
    """
    answer = layout.draws.pick(YES_NO)
    shape, other_shape, third_shape = layout.shapes(3)
    colour, other_colour, third_colour = layout.draws.sample(layout.colours, 3)
    texture = texture_for(layout, (shape, colour))
    asked = (shape, colour) if answer == "yes" else (third_shape, third_colour)
    looks = (asked, (shape, other_colour), (other_shape, colour))
    windows = [layout.window(*SHOWN) for _ in looks]
    actors = tuple(
        actor(layout, shape, colour, texture, Jumps(((0, layout.spot(cell)),)), window)
        for (shape, colour), cell, window in zip(looks, layout.cells(3), windows, strict=True)
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


def colour(layout: Layout) -> Story:
    """Make a plot for "What colour was the star?"."""
    shape, colour = layout.shape(), layout.draws.pick(layout.colours)
    texture = texture_for(layout, (shape, colour))
    window = layout.window(*SHOWN)
    shown = actor(layout, shape, colour, texture, Jumps(((0, layout.spot(layout.cells(1)[0])),)), window)
    return Story(
        actors=(shown,),
        answer=colour,
        candidates=COLOUR_NAMES,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def shape(layout: Layout) -> Story:
    """Make a plot for "What shape was the red object?"

    No other object has its colour.
    """
    colour = layout.set_aside
    if colour is None:
        raise ValueError("a plot that names an object by its colour needs one: call layout.set_colour_aside() first")
    shape = layout.shape()
    texture = texture_for(layout, (shape, colour))
    window = layout.window(*SHOWN)
    shown = actor(layout, shape, colour, texture, Jumps(((0, layout.spot(layout.cells(1)[0])),)), window)
    return Story(
        actors=(shown,),
        answer=shape,
        candidates=SHAPES,
        slots={"colour": colour},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def where(layout: Layout) -> Story:
    """Make a plot for "In which quarter of the picture was the star?"."""
    answer = layout.draws.pick(QUADRANTS)
    shape, colour = layout.shape(), layout.draws.pick(layout.colours)
    texture = texture_for(layout, (shape, colour))
    window = layout.window(*SHOWN)
    shown = actor(layout, shape, colour, texture, Jumps(((0, layout.spot(layout.cell_in(answer))),)), window)
    return Story(
        actors=(shown,),
        answer=answer,
        candidates=QUADRANTS,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def brief(layout: Layout) -> Story:
    """Make a plot for "Which shape flashed up?"

    It is visible for one or two frames, in front of everything else.
    """
    shape, colour = layout.shape(), layout.draws.pick(layout.colours)
    texture = texture_for(layout, (shape, colour))
    length = layout.draws.between(1, 2)
    start = layout.draws.between(1, layout.frames - length - 1)
    spot = layout.draws.uniform(0.42, 0.58), layout.draws.uniform(0.42, 0.58)
    flash = Actor(
        shape=shape,
        colour=((0, colour),),
        texture=texture,
        size=((0, FLASH),),
        path=Jumps(((0, spot),)),
        visible=((start, start + length),),
        tilt=tilt(layout.draws),
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


def touched(layout: Layout) -> Story:
    """Make a plot for "Which of its four neighbours did the star touch?"."""
    shape, *others = layout.shapes(5)
    middle, *around = layout.plus()
    colours = [layout.draws.pick(layout.colours) for _ in range(5)]
    texture = texture_for(layout, (shape, colours[0]))
    which = layout.draws.below(4)
    window = layout.window(*WINDOW)
    home = place(middle)
    towards = [(place(cell)[0] - home[0], place(cell)[1] - home[1]) for cell in around]
    reach = 1 + (OUTWARD - SMALL - MEDIUM + OVERLAP) / 0.25  # of the way to a neighbour's cell
    goal = home[0] + reach * towards[which][0], home[1] + reach * towards[which][1]
    leave, arrive, part, back = layout.moments(window, 4, 2)
    stops = ((leave, home), (arrive, goal), (part, goal), (back, home))
    mover = actor(layout, shape, colours[0], texture, Glide(stops), window, SMALL)
    targets = tuple(
        actor(layout, other, colour, texture, Jumps(((0, _outward(home, way)),)), window, MEDIUM)
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


def passing(layout: Layout) -> Story:
    """Make a plot for "Which of two that cross was in front?"."""
    shapes = layout.shapes(2)
    texture = texture_for(layout, shapes)
    ends = [place(cell) for cell in layout.line(3)]
    window = layout.window(*WINDOW)
    first, last = window[0], window[1] - 1
    aside = layout.draws.pick((-PASSING_ASIDE, PASSING_ASIDE))
    actors = []
    for shape, (start, end) in zip(shapes, ((ends[0], ends[2]), (ends[2], ends[0])), strict=True):
        stops = tuple(
            (first + share * (last - first), bulge(start, end, share, aside)) for share in (0, 0.25, 0.5, 0.75, 1)
        )
        colour = layout.draws.pick(layout.colours)
        actors.append(actor(layout, shape, colour, texture, Glide(stops), window, LARGE))
    named = layout.draws.shuffled((0, 1))
    middle, reach = (first + last) / 2, 0.2 * (last - first)
    evidence = tuple(Evidence(i, int(middle - reach), int(middle + reach) + 1) for i in (0, 1))
    return Story(
        actors=tuple(actors),
        answer=shapes[1],  # later actors are drawn over earlier ones
        candidates=tuple(shapes[i] for i in named),
        slots={"first": shapes[named[0]], "second": shapes[named[1]]},
        parts=(*sorted(shapes), texture),
        evidence=evidence,
        subjects=tuple(named),
    )
