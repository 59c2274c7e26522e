"""The suite's files: Markdown, JSON, plots."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aviot.evaluation.journal import write_durably
from aviot.evaluation.suite.markdown import as_markdown
from aviot.evaluation.suite.suite import SuiteReport

MARKDOWN, JSON = "suite.md", "suite.json"


def as_json(report: SuiteReport) -> dict[str, Any]:
    """The whole report as JSON knows it."""
    return asdict(report)


def write_report(report: SuiteReport, folder: Path) -> list[Path]:
    """Write everything; without matplotlib there are no plots. The files that were written."""
    write_durably(folder / MARKDOWN, as_markdown(report).encode())
    write_durably(folder / JSON, json.dumps(as_json(report), indent=2, ensure_ascii=False).encode() + b"\n")
    try:
        from aviot.evaluation.suite.plots import draw
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        return [folder / MARKDOWN, folder / JSON]
    return [folder / MARKDOWN, folder / JSON, *draw(report, folder)]
