"""Files of one explanation: the page, the figures, and the exact coefficients as safetensors."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.backbones.checkpoints.shards import write_tensors
from aviot.explain.animation import AnimationViews, check_suffix, write_animation
from aviot.explain.figures import ChosenPair, FigureViews, write_figures
from aviot.explain.page import PageViews, page_of, report_of
from aviot.explain.pictures import Pictures, by_moment
from aviot.explain.study import Asking, Study, study
from aviot.explain.view import View
from aviot.session import VideoSession
from aviot.utils.files import atomic_write, check_folder, check_outputs_differ, explain_write_errors


@dataclass(frozen=True)
class Outputs:
    """The files to write; `figures` is a directory, and `pair` selects the support and frame that figures show."""

    page: Path
    figures: Path | None = None
    export: Path | None = None
    pair: ChosenPair = field(default_factory=ChosenPair)
    animation: Path | None = None

    def check(self, video: Path) -> None:
        """Raise for files that could not be written or would overwrite the video or each other."""
        check_outputs_differ({"the page": self.page, "the data": self.export, "the animation": self.animation}, video)
        if self.animation is not None:
            check_suffix(self.animation)
        if self.figures is not None:
            check_folder(self.figures, "name a folder for the figures")
        if self.figures is not None and find_spec("matplotlib") is None:
            raise ValueError("figures need matplotlib, which is not installed; pip install 'aviot[plot]'")


@dataclass(frozen=True)
class ExportViews:
    """A collector of each view's exact coefficients."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, view: View) -> None:
        """Add one view's numbers: `question0.coefficients` [K,S,T] and `question0.path_shares` [L,K,S]."""
        name = "none" if view.question is None else f"question{view.question}"
        self.tensors[f"{name}.coefficients"] = view.coefficients
        self.tensors[f"{name}.path_shares"] = view.mass.sum(-1)
        self.metadata[name] = {"path": view.path, "budgets": view.budgets, "paths": view.names}


def build_report(
    session: VideoSession, pictures: Pictures, asking: Asking, *others: Callable[[View], None]
) -> tuple[Study, dict[str, Any]]:
    """Return the study and the page's data; `others` are called with every view too."""
    asking = replace(asking, method=session.backbone.method(asking.method).name)  # the stand-in's if that one runs
    moments = by_moment(pictures, session.video, session.encoded.times)
    page = PageViews(len(asking.conditioning), moments, session.backbone.patch_cover)

    def use(view: View) -> None:
        for consumer in (page.add, *others):
            consumer(view)

    found = study(session, pictures, asking, use)
    session.report("pictures")
    return found, report_of(found, page.packed)


def explain(
    session: VideoSession, pictures: Pictures, asking: Asking, outputs: Outputs, *others: Callable[[View], None]
) -> tuple[Study, list[Path]]:
    """Write all outputs; return the study and the files. `others` are called with every view too."""
    figures, export = FigureViews(outputs.pair), ExportViews()
    others += () if outputs.figures is None else (figures.add,)
    others += () if outputs.export is None else (export.add,)
    drawn = AnimationViews(by_moment(pictures, session.video, session.encoded.times), session.backbone.patch_cover)
    others += () if outputs.animation is None else (drawn.add,)
    found, report = build_report(session, pictures, asking, *others)
    session.report("write")
    advice = "free some space or name another file"
    with explain_write_errors(outputs.page, advice), atomic_write(outputs.page) as temporary:
        temporary.write_text(page_of(report), encoding="utf-8")
    written = [outputs.page]
    if outputs.export is not None:
        write_export(outputs.export, found, export)
        written.append(outputs.export)
    if outputs.animation is not None:
        with explain_write_errors(outputs.animation, advice):
            write_animation(outputs.animation, found, drawn, [each["sentence"] for each in report["conditions"]])
        written.append(outputs.animation)
    if outputs.figures is not None:
        written += write_figures(outputs.figures, found, figures)
    return found, written


def write_export(path: Path, study: Study, views: ExportViews) -> None:
    """Write coefficients, `times` [T] in seconds and `boxes` [S,4] as fractions of a frame; the rest as metadata."""
    video = study.video
    metadata = {
        "model": study.model.name,
        "notice": study.notice,
        "name": video.name,
        "duration": video.duration,
        "size": study.pictures.size,
        "grid": study.grid,
        "questions": study.questions,
        "ratio": study.ratio,
        "method": study.method,
        "views": views.metadata,
        "answers": [[each.question, each.kind, each.answer] for each in study.conditions],
    }
    layout = {
        "times": torch.tensor(study.times, dtype=torch.float64),
        "boxes": patch_boxes(study.grid, study.cover),
    }
    write_tensors(path, views.tensors | layout, {"aviot": json.dumps(metadata)})


def patch_boxes(grid: tuple[int, int], cover: float) -> Float[Tensor, "S 4"]:
    """Return left, top, right and bottom of every patch, row by row, as fractions of the frame's width and height."""
    rows, columns = grid
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    sides = torch.tensor([columns, rows, columns, rows], dtype=torch.float64)
    return torch.stack((x, y, x + 1, y + 1), -1).reshape(-1, 4) * cover / sides
