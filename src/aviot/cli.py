"""The command line: one command per verb. Reports go to stdout; `--json` makes them plain data."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from aviot.commands.account import account
from aviot.commands.answer import answer
from aviot.commands.app import app as serve_app
from aviot.commands.bench import bench
from aviot.commands.compress import compress
from aviot.commands.convert import convert
from aviot.commands.demo import demo
from aviot.commands.evaluate import evaluate
from aviot.commands.explain import explain
from aviot.commands.reproduce import reproduce
from aviot.commands.train import train

app = typer.Typer(
    name="aviot",
    help="Compress the video tokens of a language model by optimal transport.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

for verb in (answer, compress, explain, evaluate, bench, train, convert, account, demo, reproduce):
    app.command()(verb)
app.command("app")(serve_app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("aviot"))
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compress the video tokens of a language model by optimal transport."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an answer must not be lost to a terminal that cannot show it
            stream.reconfigure(errors="replace")
