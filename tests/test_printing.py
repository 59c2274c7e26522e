"""Untrusted text at a terminal: shown as text, never interpreted."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.file_proxy import FileProxy
from rich.table import Table
from typer.testing import CliRunner

import aviot
from aviot.cli import app
from aviot.commands import terminal
from aviot.utils.printing import SafeConsole, SafeProgress, SafeStream, guard_output, json_text, one_line, printable

HOSTILE = "a\x1b[2Jb\x9bc\rd\x07e\u202ef[red]x[/red]"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")
SOURCES = Path(aviot.__file__).parent


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("control", [*"\x00\x07\x08\x0b\x1b\r\x7f\x85\x9b\x9d\u2028\u202e\u2066\ufeff\ud800\U000e0041"])
def test_control_characters_are_replaced(control):
    assert printable(f"a{control}b") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    "text", ["日本語", "a\n\tb", "naïve café", "5\u00a0%", "क\u200dष", "שלום\u200e!", "👩\u200d🚀", "[red]x"]
)
def test_other_text_is_unchanged(text):
    assert printable(text) == text


def test_one_line_is_one():
    assert one_line("a\n b\r\n\tc\x1b[2J\u2028d") == "a b c\N{REPLACEMENT CHARACTER}[2J d"


@pytest.mark.parametrize("value", [HOSTILE, "\ud800", "\U000e0041", "狗", "\x7f\x80"])
def test_json_keeps_its_data_and_no_control(value):
    text = json_text({"a": value, value: [1.5, None]}, indent=2)
    assert not CONTROLS.search(text)
    assert json.loads(text) == {"a": value, value: [1.5, None]}
    assert ("狗" in text) == (value == "狗")
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text(float("nan"))


def test_a_console_writes_only_its_own_control_codes():
    """Styles of rich are kept, all other control characters replaced, and markup is text unless requested."""
    screen = Terminal()
    console = SafeConsole(file=screen, force_terminal=True, color_system="standard", width=200)
    console.print(HOSTILE, style="red", markup=False, highlight=False)
    table = Table("name", title=HOSTILE)
    table.add_row(HOSTILE)
    console.print(table)
    written = screen.getvalue()
    assert "[red]x[/red]" in written.splitlines()[0]
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", written))
    assert written.startswith("\x1b[31m")


def guarded(monkeypatch):
    """Set up the streams as in a command."""
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    guard_output()
    return out, err


def test_everything_that_is_printed_is_filtered(monkeypatch):
    out, err = guarded(monkeypatch)
    guard_output()  # twice is once
    print(HOSTILE)
    sys.stdout.writelines([HOSTILE])
    handler = logging.StreamHandler()  # as other libraries have
    handler.emit(logging.LogRecord("other", logging.WARNING, "", 0, HOSTILE, (), None))
    sys.excepthook(OSError, OSError(HOSTILE), None)
    for stream in (out, err):
        assert stream.getvalue().count("[red]x[/red]") == 2
        assert not CONTROLS.search(stream.getvalue())
    assert isinstance(sys.stdout, SafeStream)
    assert sys.stdout.isatty()


def test_a_progress_bar_keeps_its_codes_and_filters_other_lines(monkeypatch):
    _, err = guarded(monkeypatch)
    with SafeProgress(console=SafeConsole(stderr=True, force_terminal=True, width=80), transient=True) as progress:
        progress.add_task(HOSTILE)
        progress.refresh()
        print(f"\x1b[8mhidden {HOSTILE}", file=sys.stderr)
        assert not isinstance(sys.stderr, FileProxy)
    written = err.getvalue()
    assert "\N{REPLACEMENT CHARACTER}[8mhidden" in written  # not read as a style
    assert "\x1b[2K" in written  # the bar's own, as they should be
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", written))
    assert not re.search(r"\x1b\[2J|\x1b\[8m", written)
    assert isinstance(sys.stderr, SafeStream)


@pytest.mark.parametrize(
    "arguments",
    [
        [f"verb{HOSTILE}"],
        [f"--{HOSTILE}"],
        ["answer", f"--{HOSTILE}"],
        ["account", "more", HOSTILE],
        ["answer", f"/nowhere/{HOSTILE}", "-q", "What?"],
        ["evaluate", HOSTILE],
        ["app", "--model", HOSTILE],
    ],
)
def test_arguments_quoted_in_an_error(arguments, monkeypatch):
    console = SafeConsole(stderr=True)  # the cached one belongs to another test's stream
    monkeypatch.setattr(terminal, "stderr_console", lambda: console)
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "FORCE_COLOR": "1"})
    assert done.exit_code == 2
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.output)
    assert "[red]x[/red]" in shown
    assert not CONTROLS.search(shown)


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "aviot", "app", "--model", HOSTILE],
        ["-c", "from aviot.utils.printing import guard_output; import sys, warnings; guard_output(); "
               "text = sys.argv[1]; warnings.warn(text); raise OSError(text)", HOSTILE],
    ],
)  # fmt: skip
def test_a_process_prints_no_control_characters_of_its_arguments(command):
    """Neither in an error message, nor in a warning, nor in a traceback."""
    environment = os.environ | {"COLUMNS": "200", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, *command], capture_output=True, env=environment, timeout=60)
    assert done.returncode in (1, 2)
    assert done.stderr.count(b"[red]x[/red]") == done.returncode % 2 + 1
    assert not CONTROLS.search((done.stderr + done.stdout).decode())


def test_no_unsafe_console_or_progress_bar_is_created():
    """A plain rich console would print control characters."""
    made = [
        f"{path.relative_to(SOURCES)}: {line.strip()}"
        for path in SOURCES.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<![A-Za-z_.])(Console|Progress)\(", line) and path.name != "printing.py"
    ]
    assert made == []
