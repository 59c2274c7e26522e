"""One explanation, in order: read, encode once, compress and answer, then the page, the figures and the data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aviot.explain.export import ExportViews, write_export
from aviot.explain.figures import FigureViews, Wanted, write_figures
from aviot.explain.page import page_of
from aviot.explain.pictures import Pictures
from aviot.explain.report import PageViews, report_of
from aviot.explain.study import Asking, Study, study
from aviot.explain.view import View
from aviot.session import VideoSession
from aviot.utils.files import atomic_write, check_folder, check_outputs_differ, explain_write_errors


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
    session: VideoSession, pictures: Pictures, asking: Asking, *others: Callable[[View], None]
) -> tuple[Study, dict[str, Any]]:
    """Return the study and the page's data; `others` are handed every view too."""
    page = PageViews(len(asking.conditioning))

    def keep(view: View) -> None:
        for take in (page.keep, *others):
            take(view)

    found = study(session, pictures, asking, keep)
    session.report("pictures")
    return found, report_of(found, page.taken)


def explain(
    session: VideoSession, pictures: Pictures, asking: Asking, outputs: Outputs, *others: Callable[[View], None]
) -> tuple[Study, list[Path]]:
    """Write everything that was asked for; return the study and the files. `others` are handed every view too."""
    figures, export = FigureViews(outputs.wanted), ExportViews()
    others += () if outputs.figures is None else (figures.keep,)
    others += () if outputs.export is None else (export.keep,)
    found, report = build_report(session, pictures, asking, *others)
    session.report("write")
    advice = "free some space or name another file"
    with explain_write_errors(outputs.page, advice), atomic_write(outputs.page) as temporary:
        temporary.write_text(page_of(report), encoding="utf-8")
    written = [outputs.page]
    if outputs.export is not None:
        write_export(outputs.export, found, export)
        written.append(outputs.export)
    if outputs.figures is not None:
        written += write_figures(outputs.figures, found, figures)
    return found, written
