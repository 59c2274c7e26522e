"""One explanation, in order: read, encode once, compress and answer, then the page, the figures and the data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aviot.explain.export import ExportViews, write_export
from aviot.explain.figures import FigureViews, Wanted, write_figures
from aviot.explain.page import page_of
from aviot.explain.pictures import Pictures
from aviot.explain.report import PageViews, report_of
from aviot.explain.study import Study, check_questions, study
from aviot.explain.view import View
from aviot.files import check_folder, check_outputs_differ, naming_failures, replacing
from aviot.models.session import Session
from aviot.request import CompressorName


@dataclass(frozen=True)
class Outputs:
    """What is to be written, checked before any work is done for it."""

    page: Path
    figures: Path | None = None
    export: Path | None = None
    wanted: Wanted = field(default_factory=Wanted)

    def check(self, video: Path) -> None:
        """Refuse what could not be written, or would take the place of something else."""
        check_outputs_differ({"the page": self.page, "the data": self.export}, video)
        if self.figures is not None:
            check_folder(self.figures, "--figures names a folder")
        if self.figures is not None and find_spec("matplotlib") is None:
            raise ValueError("figures need matplotlib, which is not installed; pip install 'aviot[plot]'")


def build_report(
    session: Session,
    pictures: Pictures,
    questions: Sequence[str],
    *others: Callable[[View], None],
    ratio: float | None,
    compressor: CompressorName,
    max_new_tokens: int,
) -> tuple[Study, dict[str, Any]]:
    """The study and the page's data; `others` are handed every view too."""
    expected = len(check_questions(questions)) + 1 if compressor == "aviot" else 1
    page = PageViews(expected, session.model.config.compressor.grid)

    def keep(view: View) -> None:
        for take in (page.keep, *others):
            take(view)

    found = study(session, pictures, questions, keep, ratio=ratio, compressor=compressor, max_new_tokens=max_new_tokens)
    session.report("pictures")
    return found, report_of(found, page.taken)


def explain(
    session: Session,
    pictures: Pictures,
    questions: Sequence[str],
    outputs: Outputs,
    *others: Callable[[View], None],
    ratio: float | None,
    compressor: CompressorName,
    max_new_tokens: int,
) -> tuple[Study, list[Path]]:
    """Write everything that was asked for; returns what was found and the files. `others` are handed every view too."""
    figures, export = FigureViews(outputs.wanted), ExportViews()
    others += () if outputs.figures is None else (figures.keep,)
    others += () if outputs.export is None else (export.keep,)
    found, report = build_report(
        session, pictures, questions, *others, ratio=ratio, compressor=compressor, max_new_tokens=max_new_tokens
    )
    session.report("write")
    with naming_failures(outputs.page, "free some space or name another file"), replacing(outputs.page) as temporary:
        temporary.write_text(page_of(report), encoding="utf-8")
    written = [outputs.page]
    if outputs.export is not None:
        write_export(outputs.export, found, export)
        written.append(outputs.export)
    if outputs.figures is not None:
        written += write_figures(outputs.figures, found, figures)
    return found, written
