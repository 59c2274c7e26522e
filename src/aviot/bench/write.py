"""Where a result goes: a table or JSON on stdout, files for JSON and the picture."""

import json
from pathlib import Path

from aviot.bench.plot import check_plot, draw_plot
from aviot.bench.report import as_plain, print_report
from aviot.bench.result import Result
from aviot.utils.files import check_output, explain_write_errors, write_durably
from aviot.utils.printing import SafeConsole

ELSEWHERE = "free some space, or name a file elsewhere"


def check_outputs(output: Path | None, plot: Path | None) -> None:
    """Refuse what could not be written, before the work for it is done."""
    if plot is not None:
        check_plot(plot)
    for path in (output, plot):
        if path is not None:
            check_output(path)


def write_outputs(result: Result, output: Path | None, plot: Path | None, *, as_json: bool) -> None:
    """Print the table, or JSON and nothing else, and write the files that were asked for."""
    text = json.dumps(as_plain(result), indent=2)
    if as_json:
        print(text)
    else:
        print_report(result, SafeConsole())
    if output is not None:
        _write(output, f"{text}\n".encode())
    if plot is not None:
        _write(plot, draw_plot(result, plot.suffix))


def _write(path: Path, data: bytes) -> None:
    with explain_write_errors(path, ELSEWHERE):
        write_durably(path, data)
