"""Allocation of positions, shapes, colours and times while a scene is put together."""

import copy
from collections.abc import Sequence

from aviot.scenes.draws import Draws
from aviot.scenes.scene import COLOUR_NAMES, SHAPES, Axis, Point, Span, Split
from aviot_lab.world.words import QUADRANTS

CELLS = 4  # along a side: a cell is 27 of 108 pixels, and objects in different cells never overlap
JITTER = 0.012  # of a position: less than an object's distance from the edges of its cell

LANE_TRIES = 12  # draws of a lane before giving up

Cell = tuple[int, int]  # row, column

AXES: tuple[Axis, ...] = ("x", "y")


class NoRoom(Exception):
    """Raised when a plot does not fit; it is left out."""


class Layout:
    """Cells, shapes and colours that are still free. A plot owns what it takes for the whole video.

    Plots share no shapes, so that "the star" is unique; nor the colour that is set aside for a question that names an
    object by its colour alone. Positions are uniform over the square's symmetries, so that whether a plot fits does not
    depend on its answer.
    """

    def __init__(self, draws: Draws, split: Split, frames: int) -> None:
        self.draws = draws
        self.split = split
        self.frames = frames
        self.colours = list(COLOUR_NAMES)
        self.set_aside: str | None = None
        self._shapes = list(SHAPES)
        self._cells = {(row, column) for row in range(CELLS) for column in range(CELLS)}

    def trial(self, draws: Draws) -> "Layout":
        """Return a copy with other draws, on which a plot can be tried."""
        other = copy.copy(self)
        other.draws = draws
        other.colours = list(self.colours)
        other._shapes = list(self._shapes)
        other._cells = set(self._cells)
        return other

    def set_colour_aside(self) -> None:
        """Reserve one colour for an object that a question names by it."""
        self.set_aside = self.draws.pick(self.colours)
        self.colours.remove(self.set_aside)

    def shape(self, among: Sequence[str] = SHAPES) -> str:
        """Take a free shape."""
        free = [shape for shape in self._shapes if shape in among]
        if not free:
            raise NoRoom
        shape = self.draws.pick(free)
        self._shapes.remove(shape)
        return shape

    def shapes(self, count: int) -> list[str]:
        """Take free shapes."""
        return [self.shape() for _ in range(count)]

    def free_shapes(self) -> list[str]:
        """Return the free shapes."""
        return list(self._shapes)

    def cells(self, count: int) -> list[Cell]:
        """Take any free cells."""
        if len(self._cells) < count:
            raise NoRoom
        return self._take(self.draws.sample(sorted(self._cells), count))

    def cell_in(self, quadrant: str) -> Cell:
        """Take a free cell of a quarter of the frame."""
        inside = [cell for cell in sorted(self._cells) if quadrant_of(place(cell)) == quadrant]
        if not inside:
            raise NoRoom
        return self._take([self.draws.pick(inside)])[0]

    def line(self, count: int) -> list[Cell]:
        """Take free cells in a row or a column, in either direction."""
        lines = [[(row, start + i) for i in range(count)] for row in range(CELLS) for start in range(CELLS - count + 1)]
        lines += [[(column, row) for row, column in line] for line in lines]
        chosen = self._any(lines)
        return chosen[::-1] if self.draws.below(2) else chosen

    def block(self, sides: Sequence[int]) -> tuple[Point, float]:
        """Take a square of free cells, of the first of these sizes that fits; return its middle and its side."""
        for side in sides:
            corners = [(row, column) for row in range(CELLS - side + 1) for column in range(CELLS - side + 1)]
            blocks = [[(r + i, c + j) for i in range(side) for j in range(side)] for r, c in corners]
            if any(self._cells.issuperset(block) for block in blocks):
                row, column = self._any(blocks)[0]
                return ((column + side / 2) / CELLS, (row + side / 2) / CELLS), side / CELLS
        raise NoRoom

    def plus(self) -> list[Cell]:
        """Take a free cell and its four neighbours, the middle first."""
        middles = [(row, column) for row in range(1, CELLS - 1) for column in range(1, CELLS - 1)]
        return self._any([[(r, c), (r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)] for r, c in middles])

    def lane(self, margin: float, radius: float) -> tuple[Axis, float]:
        """Take a free lane from edge to edge for an object of this radius; return its axis and the other coordinate."""
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
        """Return a point near the middle of a cell."""
        x, y = place(cell)
        return x + self.draws.uniform(-JITTER, JITTER), y + self.draws.uniform(-JITTER, JITTER)

    def window(self, low: float, high: float, least: int) -> Span:
        """Return an interval between `low` and `high` of the video long, and at least `least` frames."""
        length = min(max(round(self.frames * self.draws.uniform(low, high)), least), self.frames)
        start = self.draws.below(self.frames - length + 1)
        return start, start + length

    def moments(self, window: Span, count: int, gap: int) -> list[int]:
        """Return frames in order, at least `gap` from each other and from the window's ends."""
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
    """Return x and y of a cell's middle."""
    return (cell[1] + 0.5) / CELLS, (cell[0] + 0.5) / CELLS


def quadrant_of(point: Point) -> str:
    """Return the quarter of the frame that a point is in."""
    return QUADRANTS[2 * (point[1] >= 0.5) + (point[0] >= 0.5)]
