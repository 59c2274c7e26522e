"""The command line: one command per verb. Reports go to stdout; `--json` makes them plain data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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
from aviot.commands.train import TrainCommand, train
from aviot.utils.printing import guard_output, printable


class Verbs(TyperGroup):
    """The verbs; what a usage error repeats of the arguments is made printable."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options before the verb."""
        with _printable_usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Find the verb, read its options and run it."""
        with _printable_usage_errors():
            return super().invoke(*args, **kwargs)


@contextmanager
def _printable_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        told = getattr(error, "format_message", None)  # an error of click, which typer may bring its own copy of
        if told is not None:
            error.format_message = lambda: printable(told())  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="aviot",
    cls=Verbs,
    help="Compress the video tokens of a language model by optimal transport.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _paragraphs(verb: Callable[..., None]) -> str:
    """Return a docstring whose lines break where the terminal's do: those of the source are wider than most."""
    return "\n\n".join(" ".join(part.split("\n")) for part in cleandoc(verb.__doc__ or "").split("\n\n"))


for verb in (answer, compress, explain, evaluate, bench, train, convert, account, demo, reproduce):
    app.command(cls=TrainCommand if verb is train else None, help=_paragraphs(verb))(verb)
app.command("app", help=_paragraphs(serve_app))(serve_app)


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
    guard_output()
