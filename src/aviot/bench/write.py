"""Where a result goes: a table or JSON on stdout, files for JSON and the picture."""

import json
from pathlib import Path

from rich.console import Console

from aviot.bench.plot import require_matplotlib, save_plot
from aviot.bench.report import as_plain, print_report
from aviot.bench.result import Result

STDOUT = Path("-")


def check_outputs(json_file: Path | None, plot: Path | None) -> None:
    """Refuse what could not be written, before the work for it is done."""
    if plot is not None:
        require_matplotlib()
    for path in (json_file, plot):
        if path is not None and path != STDOUT:
            _require_writable(path)


def write_outputs(result: Result, json_file: Path | None, plot: Path | None) -> None:
    """The table on stdout, or JSON there and nothing else; the files that were asked for."""
    text = json.dumps(as_plain(result), indent=2)
    if json_file == STDOUT:
        print(text)
    else:
        print_report(result, Console())
        if json_file is not None:
            json_file.write_text(text + "\n")
    if plot is not None:
        save_plot(result, plot)


def _require_writable(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file to write")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no folder; make it first")
