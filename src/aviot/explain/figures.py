"""Figures as in the paper, as PDF and PNG: budgets by question, the paths of one pair, the sources of one support."""

import warnings
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aviot.explain.maps import opacity
from aviot.explain.study import Study
from aviot.explain.view import View
from aviot.methods.aviot.analysis import Agreement, agreement, mass_inside, top_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PATH_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442")  # Okabe and Ito
OUTLINE = "#f0e442"
SHOWN_FRAMES = 5
DPI = 200  # of the PNGs
COLUMN_INCHES = 2.9  # width of a condition
TITLE_SIZE = 7.0  # points, of titles with a question or an answer


@dataclass(frozen=True)
class ChosenPair:
    """The support and the frame that figures show; None stands for the most relevant one."""

    support: int | None = None
    frame: int | None = None

    def pair(self, view: View) -> tuple[int, int]:
        """Return a support and a frame: the chosen ones, or the first question's most relevant ones."""
        outputs, frames = view.frames.shape
        for name, value, count in (("support", self.support, outputs), ("frame", self.frame, frames)):
            if value is not None and not 0 <= value < count:
                raise ValueError(f"{name} must be from 0 to {count - 1}, got {value}")
        support, frame = view.starting_pair(0)
        if self.support is not None:
            support, frame = self.support, int(view.frames[self.support].argmax())
        elif self.frame is not None:
            support = int(view.frames[:, self.frame].argmax())
        return support, frame if self.frame is None else self.frame


@dataclass
class FigureViews:
    """A collector of the data that figures need of each view; the pair is chosen in the first."""

    chosen: ChosenPair
    budgets: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)
    frames: list[Float[Tensor, "K T"]] = field(default_factory=list)

    def add(self, view: View) -> None:
        """Copy budgets and distributions, and from the first view the maps of a pair and of a support."""
        if not self.frames:
            self.support, self.frame = self.chosen.pair(view)
            self.names = view.names
            self.maps = view.mass[:, self.support, :, self.frame].clone()  # [L,S]
            weights = view.frames[self.support]
            best = [frame for frame in weights.argsort(descending=True).tolist() if weights[frame] > 0]
            self.shown = sorted([self.frame, *[frame for frame in best if frame != self.frame][: SHOWN_FRAMES - 1]])
            self.fields = view.mass[:, self.support][:, :, self.shown].sum(0).T.clone()  # [n,S]
        self.budgets.append(view.budgets)
        self.frames.append(view.frames.clone())


def write_figures(folder: Path, study: Study, views: FigureViews) -> list[Path]:
    """Write each figure that has data as PDF and PNG; return the files."""
    import matplotlib

    drawn: dict[str, Callable[[Study, FigureViews], Figure]] = {"support": support_figure}
    if views.budgets[0] and len(views.frames) > 1:
        drawn["allocation"] = allocation_figure
    if len(views.names) > 1:
        drawn["paths"] = paths_figure
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    settings = {"font.size": 8, "pdf.fonttype": 42, "text.parse_math": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # such letters are drawn as boxes
        for name, draw in drawn.items():
            figure = draw(study, views)
            for suffix in ("pdf", "png"):
                written.append(folder / f"{name}.{suffix}")
                figure.savefig(written[-1], dpi=DPI)
                figure.set_layout_engine("none")  # keeps the first file's layout for the second
    return written


def allocation_figure(study: Study, views: FigureViews) -> "Figure":
    """Draw the first stage's budgets above maps of the supports' sources: rows are questions, columns conditions."""
    largest = max(budget / sum(stages[0]) for stages in views.budgets for budget in stages[0])
    kinds = list(dict.fromkeys(each.kind for each in study.conditions))
    figure = _figure(COLUMN_INCHES * len(kinds), 3.2 * len(study.questions))
    grid = figure.add_gridspec(2 * len(study.questions), len(kinds), height_ratios=[1, 2] * len(study.questions))
    for each in study.conditions:
        column, budgets = kinds.index(each.kind), views.budgets[each.view][0]
        bars = figure.add_subplot(grid[2 * each.question, column])
        shares = [budget / sum(budgets) for budget in budgets]
        drawn = bars.bar(range(1, len(budgets) + 1), shares, color="#0072b2")
        bars.bar_label(drawn, [str(budget) for budget in budgets], fontsize=7)
        bars.set(ylim=(0, 1.25 * largest), xlabel="segment", ylabel="share" if column == 0 else "")
        bars.set_xticks(range(1, len(budgets) + 1))
        said = fitted(f"{each.kind}: {each.answer}" if each.answer else each.kind, 0.85 * COLUMN_INCHES, TITLE_SIZE)
        bars.set_title(said, fontsize=TITLE_SIZE)
        image = figure.add_subplot(grid[2 * each.question + 1, column])
        image.imshow(_by_row(views.frames[each.view]), aspect="auto", cmap="cividis", interpolation="nearest")
        image.set(xlabel="source frame", ylabel="support" if column == 0 else "")
        if column == 0:
            asked = fitted(study.questions[each.question], COLUMN_INCHES * (len(kinds) - 0.2), TITLE_SIZE)
            image.set_title(asked, loc="left", fontsize=TITLE_SIZE)
    return figure


def paths_figure(study: Study, views: FigureViews) -> "Figure":
    """Draw the paths of one pair, each with its own colour scale, and the union of their top 20 %."""
    found = agreement(views.maps.double(), study.grid)
    figure = _figure(2.4 * (len(views.names) + 1), 3.0)
    axes = figure.subplots(1, len(views.names) + 1)
    for level, (name, axis) in enumerate(zip(views.names, axes[:-1], strict=True)):
        outlined = _outlined(views.maps[level], PATH_COLOURS[level % len(PATH_COLOURS)])
        _picture(axis, study, views.frame, grey=True)
        _heat(axis, study, views.maps[level], alpha=0.7 * outlined.opacity)
        _boxes(axis, study, outlined)
        axis.set_title(f"{name}: {float(found.shares[level]):.1%}\ntop 20 %: {outlined.share:.1%}", fontsize=7)
    _picture(axes[-1], study, views.frame)
    for level in range(len(views.names)):
        outlined = _outlined(views.maps[level], PATH_COLOURS[level % len(PATH_COLOURS)])
        _boxes(axes[-1], study, outlined, 0.16 * level + 0.06)
    axes[-1].set_title("top 20 %, together")
    time = study.times[views.frame]
    figure.suptitle(f"Frame {views.frame} ({time:.2f} s) to support {views.support}. {_summary(found)}", fontsize=8)
    return figure


def support_figure(study: Study, views: FigureViews) -> "Figure":
    """Draw one support: its curve over the frames, its strongest frames with their top 20 %, one frame's whole map."""
    figure = _figure(2.0 * (len(views.shown) + 1), 4.2)
    grid = figure.add_gridspec(2, len(views.shown) + 1, height_ratios=[1, 1.3])
    curve = figure.add_subplot(grid[0, :])
    weights = views.frames[0][views.support].numpy()
    curve.plot(range(len(weights)), weights, color="#0072b2", marker="o" if len(weights) == 1 else None)
    for frame in views.shown:
        curve.axvspan(frame - 0.5, frame + 0.5, color="#bbbbbb", alpha=0.6, linewidth=0)
    curve.axvline(views.frame, color="#cc79a7")
    curve.set(xlabel="source frame", ylabel="ω", title=f"Support {views.support}: share of every frame")
    curve.set_ylim(bottom=0)
    for place, frame in enumerate(views.shown):
        axis = figure.add_subplot(grid[1, place])
        _picture(axis, study, frame)
        outlined = _outlined(views.fields[place], OUTLINE)
        _boxes(axis, study, outlined)
        axis.set_title(
            f"frame {frame}, {study.times[frame]:.2f} s\nω {weights[frame]:.1%}, top 20 %: {outlined.share:.1%}",
            fontsize=7,
        )
    axis = figure.add_subplot(grid[1, -1])
    fused = views.maps.sum(0)
    alpha = _outlined(fused, OUTLINE).opacity
    axis.imshow(fused.reshape(study.grid).numpy(), cmap="cividis", vmin=0, alpha=alpha, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.set_title(f"frame {views.frame}: all positions", fontsize=7)
    return figure


def fitted(text: str, inches: float, size: float) -> str:
    """Return text shortened to one line of a width in inches, in a font size in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    line, font = "".join(c if c.isprintable() else " " for c in " ".join(text.split())), FontProperties(size=size)

    def fits(shown: str) -> bool:
        return bool(text_to_path.get_text_width_height_descent(shown, font, ismath=False)[0] <= 72 * inches)

    if fits(line):
        return line
    too_many = bisect_left(range(len(line)), True, key=lambda letters: not fits(f"{line[:letters]}…"))
    return f"{line[: too_many - 1].rstrip()}…"


def _summary(found: Agreement) -> str:
    return (
        f"Centroids {float(found.centroid_mean):.3f} apart (at most {float(found.centroid_largest):.3f}), "
        f"IoU {float(found.overlap):.3f}, JSD {float(found.divergence):.3f} bits, in all {float(found.common):.1%}"
    )


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def _by_row(frames: Float[Tensor, "K T"]) -> np.ndarray:
    return (frames / frames.amax(-1, keepdim=True)).numpy()


def _picture(axis: "Axes", study: Study, frame: int, *, grey: bool = False) -> None:
    image = study.pictures.images[frame]
    axis.imshow(np.asarray(image.convert("L").convert("RGB") if grey else image), extent=_extent(study))
    axis.set(xticks=[], yticks=[])


def _extent(study: Study) -> tuple[float, float, float, float]:
    """Return the picture's edges in the video's pixels, which preserves its aspect ratio."""
    return (0, study.pictures.size[0], study.pictures.size[1], 0)


def _heat(axis: "Axes", study: Study, values: Float[Tensor, "S"], alpha: float) -> None:
    width, height = (side * study.cover for side in study.pictures.size)
    shown: Any = values.reshape(study.grid).numpy()
    axis.imshow(shown, cmap="cividis", vmin=0, alpha=alpha, extent=(0, width, height, 0), interpolation="nearest")
    axis.set(xlim=(0, study.pictures.size[0]), ylim=(study.pictures.size[1], 0))


@dataclass(frozen=True)
class Outlined:
    """The outlined positions of a map, their share of its mass, and the opacity that follows from it."""

    cells: Bool[Tensor, "S"]
    share: float
    opacity: float
    colour: str


def _outlined(values: Float[Tensor, "S"], colour: str) -> Outlined:
    cells = top_cells(values)
    share = float(mass_inside(values, cells))
    return Outlined(cells, share, opacity(share), colour)


def _boxes(axis: "Axes", study: Study, outlined: Outlined, inset: float = 0.0) -> None:
    """Draw a box in every outlined cell, inset by a fraction of the cell's side."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    rows, columns = study.grid
    width, height = study.pictures.size[0] * study.cover / columns, study.pictures.size[1] * study.cover / rows
    boxes = [
        Rectangle(
            ((cell % columns + inset) * width, (cell // columns + inset) * height),
            (1 - 2 * inset) * width,
            (1 - 2 * inset) * height,
        )
        for cell in torch.nonzero(outlined.cells).flatten().tolist()
    ]
    drawn = PatchCollection(boxes, facecolor="none", edgecolor=outlined.colour, linewidth=0.7, alpha=outlined.opacity)
    axis.add_collection(drawn)
