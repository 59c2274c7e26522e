"""The command line: one command per verb. Reports are printed on stdout, as text or as JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aviot.commands.account import account
from aviot.commands.answer import answer
from aviot.commands.app import app as serve_app
from aviot.commands.batch import batch
from aviot.commands.bench import bench
from aviot.commands.calibrate import calibrate
from aviot.commands.compare import compare
from aviot.commands.compress import compress
from aviot.commands.convert import convert
from aviot.commands.demo import demo
from aviot.commands.evaluate import evaluate
from aviot.commands.explain import explain
from aviot.commands.reproduce import reproduce
from aviot.commands.serve import serve
from aviot.commands.train import TrainCommand, train
from aviot.commands.warmup import warmup
from aviot.commands.watch import watch
from aviot.utils.printing import guard_output, printable


class Verbs(TyperGroup):
    """The group of all commands; control characters in usage errors are replaced."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the options before the verb."""
        with _printable_usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Run the verb with its options."""
        with _printable_usage_errors():
            return super().invoke(*args, **kwargs)


@contextmanager
def _printable_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        format_message = getattr(error, "format_message", None)  # click's errors; typer may have its own copy of click
        if format_message is not None:
            error.format_message = lambda: printable(format_message())  # type: ignore[attr-defined]
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
    """Return a docstring with one line per paragraph, which the terminal wraps at its own width."""
    return "\n\n".join(" ".join(part.split("\n")) for part in cleandoc(verb.__doc__ or "").split("\n\n"))


VERBS: tuple[Callable[..., None], ...] = (
    answer,
    watch,
    compress,
    explain,
    compare,
    evaluate,
    calibrate,
    batch,
    serve,
    warmup,
    bench,
    train,
    convert,
    account,
    demo,
    reproduce,
)
for verb in VERBS:
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
