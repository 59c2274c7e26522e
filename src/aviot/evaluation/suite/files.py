"""The suite's files: Markdown, JSON, plots."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from aviot.evaluation.suite.markdown import as_markdown
from aviot.evaluation.suite.report import SuiteReport
from aviot.utils.files import write_durably
from aviot.utils.printing import json_text

MARKDOWN, JSON = "suite.md", "suite.json"


def as_json(report: SuiteReport) -> dict[str, Any]:
    """The whole report as JSON knows it."""
    return asdict(report)


def write_report(report: SuiteReport, folder: Path) -> bool:
    """Write everything; without matplotlib there are no plots. Whether it was not there yet."""
    data = json_text(as_json(report), indent=2).encode() + b"\n"
    is_new = not (folder / JSON).is_file() or (folder / JSON).read_bytes() != data
    write_durably(folder / MARKDOWN, as_markdown(report).encode())
    write_durably(folder / JSON, data)
    try:
        from aviot.evaluation.suite.plots import draw
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
    else:
        draw(report, folder)
    return is_new
