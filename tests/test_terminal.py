"""Terminal output that the commands share."""

import re
import tomllib
from pathlib import Path

import pytest
import typer
from rich.console import Console

from aviot.commands import terminal

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "PIL": "pillow", "yaml": "pyyaml"}


@pytest.mark.parametrize(("module", "extra"), terminal.EXTRAS.items())
def test_a_missing_module_names_the_extra_that_brings_it(module, extra, capsys):
    with pytest.raises(typer.Exit) as ended, terminal.mistakes():
        raise ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")
    assert ended.value.exit_code == 2
    assert f"'.[{extra}]'" in capsys.readouterr().err
    brought = {re.split(r"[><=;\[ ]", line)[0].lower() for line in PROJECT["optional-dependencies"][extra]}
    assert DISTRIBUTIONS.get(module, module) in brought


def test_a_module_of_no_extra_is_installed_by_its_name(capsys):
    with pytest.raises(typer.Exit), terminal.mistakes():
        raise ModuleNotFoundError("No module named 'wandb'", name="wandb")
    assert "pip install wandb" in capsys.readouterr().err


def test_our_own_errors_are_not_hidden():
    with pytest.raises(ZeroDivisionError), terminal.mistakes():
        _ = 1 / 0


def test_interrupted_is_exit_code_130():
    with pytest.raises(typer.Exit) as ended, terminal.mistakes():
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130


class Screen:
    """A terminal of a few lines, which interprets carriage returns, cleared lines and moves up."""

    def __init__(self):
        self.lines, self.row = [""], 0

    def write(self, text):
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part == "\x1b[2K":
                self.lines[self.row] = ""
            elif up := re.fullmatch(r"\x1b\[(\d*)A", part):
                self.row -= int(up[1] or 1)
            elif part != "\r" and not part.startswith("\x1b"):
                self.lines[self.row] = part

    def flush(self):
        """Do nothing, because nothing is buffered."""

    def isatty(self):
        return True


def test_a_spinner_leaves_nothing_before_what_is_said(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    console = Console(stderr=True, force_terminal=True)
    monkeypatch.setattr(terminal, "stderr_console", lambda: console)
    with terminal.working() as report:
        report("load")
        terminal.say("The demo model answers.")
        report("decode")
    terminal.say("done")
    assert [line for line in screen.lines if line.strip()] == ["The demo model answers.", "done"]
