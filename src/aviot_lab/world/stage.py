"""What a scene has to give away while it is put together: places, shapes, colours and time."""

import copy
from collections.abc import Sequence

from aviot_lab.world.chance import Draws
from aviot_lab.world.paths import Axis, Point
from aviot_lab.world.scene import Span
from aviot_lab.world.split import Split
from aviot_lab.world.words import COLOUR_NAMES, QUADRANTS, SHAPES

CELLS = 4  # along a side: a cell is 27 of 108 pixels, and what stays in its own is never hidden by others
JITTER = 0.012  # of a place, in parts of the frame: less than the room an object leaves in its cell

LANE_TRIES = 12  # draws of a lane before there is said to be none

Cell = tuple[int, int]  # row, column

AXES: tuple[Axis, ...] = ("x", "y")


class NoRoom(Exception):
    """A plot found no place; it is left out."""


class Stage:
    """Cells, shapes and colours that are still free. A plot owns what it takes for the whole video.

    Shapes are never shared between plots, so that "the star" is one; nor is the colour set aside for a question that
    names an object by its colour alone. All placements are drawn evenly over the square's symmetries, so that whether
    one fits does not depend on an answer.
    """

    def __init__(self, draws: Draws, split: Split, frames: int) -> None:
        self.draws = draws
        self.split = split
        self.frames = frames
        self.colours = list(COLOUR_NAMES)
        self.set_aside: str | None = None
        self._shapes = list(SHAPES)
        self._cells = {(row, column) for row in range(CELLS) for column in range(CELLS)}

    def trial(self, draws: Draws) -> "Stage":
        """A copy to try a plot on; what it takes counts only once the copy is kept."""
        other = copy.copy(self)
        other.draws = draws
        other.colours = list(self.colours)
        other._shapes = list(self._shapes)
        other._cells = set(self._cells)
        return other

    def set_colour_aside(self) -> None:
        """Keep one colour for an object that will be named by it."""
        self.set_aside = self.draws.pick(self.colours)
        self.colours.remove(self.set_aside)

    def shape(self, among: Sequence[str] = SHAPES) -> str:
        """A shape that nobody has."""
        free = [shape for shape in self._shapes if shape in among]
        if not free:
            raise NoRoom
        shape = self.draws.pick(free)
        self._shapes.remove(shape)
        return shape

    def shapes(self, count: int) -> list[str]:
        """Shapes that nobody has."""
        return [self.shape() for _ in range(count)]

    def free_shapes(self) -> list[str]:
        """Those that nobody has."""
        return list(self._shapes)

    def cells(self, count: int) -> list[Cell]:
        """Any free cells."""
        if len(self._cells) < count:
            raise NoRoom
        return self._take(self.draws.sample(sorted(self._cells), count))

    def cell_in(self, quadrant: str) -> Cell:
        """A free cell of a quarter of the picture."""
        inside = [cell for cell in sorted(self._cells) if quadrant_of(place(cell)) == quadrant]
        if not inside:
            raise NoRoom
        return self._take([self.draws.pick(inside)])[0]

    def line(self, count: int) -> list[Cell]:
        """Free cells one beside the other or one below the other, from either end."""
        lines = [[(row, start + i) for i in range(count)] for row in range(CELLS) for start in range(CELLS - count + 1)]
        lines += [[(column, row) for row, column in line] for line in lines]
        chosen = self._any(lines)
        return chosen[::-1] if self.draws.below(2) else chosen

    def block(self, sides: Sequence[int]) -> tuple[Point, float]:
        """A square of free cells, with the first of these numbers along its side that fits: its middle and its side."""
        for side in sides:
            corners = [(row, column) for row in range(CELLS - side + 1) for column in range(CELLS - side + 1)]
            blocks = [[(r + i, c + j) for i in range(side) for j in range(side)] for r, c in corners]
            if any(self._cells.issuperset(block) for block in blocks):
                row, column = self._any(blocks)[0]
                return ((column + side / 2) / CELLS, (row + side / 2) / CELLS), side / CELLS
        raise NoRoom

    def plus(self) -> list[Cell]:
        """A free cell and its four neighbours, the middle first."""
        middles = [(row, column) for row in range(1, CELLS - 1) for column in range(1, CELLS - 1)]
        return self._any([[(r, c), (r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)] for r, c in middles])

    def lane(self, margin: float, radius: float) -> tuple[Axis, float]:
        """A free lane from edge to edge for something of this radius: along which axis, and where across it."""
        for _ in range(LANE_TRIES):
            axis = self.draws.pick(AXES)
            across = self.draws.uniform(margin, 1 - margin)
            touched = range(int((across - radius) * CELLS), int((across + radius) * CELLS) + 1)
            cells = [(i, j) if axis == "x" else (j, i) for i in touched for j in range(CELLS)]
            if self._cells.issuperset(cells):
                self._take(cells)
                return axis, across
        raise NoRoom

    def spot(self, cell: Cell) -> Point:
        """A place near the middle of a cell."""
        x, y = place(cell)
        return x + self.draws.uniform(-JITTER, JITTER), y + self.draws.uniform(-JITTER, JITTER)

    def window(self, low: float, high: float, least: int) -> Span:
        """A stretch of the video: between `low` and `high` of it, at least so many frames."""
        length = min(max(round(self.frames * self.draws.uniform(low, high)), least), self.frames)
        start = self.draws.below(self.frames - length + 1)
        return start, start + length

    def moments(self, window: Span, count: int, gap: int) -> list[int]:
        """Frames in order, at least `gap` from each other and from the window's ends."""
        slack = window[1] - window[0] - (count + 1) * gap
        if slack < 0:
            raise ValueError(
                f"{count} moments {gap} frames apart need {(count + 1) * gap} frames, got the window {window}"
            )
        offsets = sorted(self.draws.below(slack + 1) for _ in range(count))
        return [window[0] + (i + 1) * gap + offset for i, offset in enumerate(offsets)]

    def _any(self, groups: Sequence[list[Cell]]) -> list[Cell]:
        free = [group for group in groups if self._cells.issuperset(group)]
        if not free:
            raise NoRoom
        return self._take(self.draws.pick(free))

    def _take(self, cells: list[Cell]) -> list[Cell]:
        self._cells -= set(cells)
        return cells


def place(cell: Cell) -> Point:
    """The middle of a cell, x and y."""
    return (cell[1] + 0.5) / CELLS, (cell[0] + 0.5) / CELLS


def quadrant_of(point: Point) -> str:
    """Which quarter of the picture a place is in."""
    return QUADRANTS[2 * (point[1] >= 0.5) + (point[0] >= 0.5)]
