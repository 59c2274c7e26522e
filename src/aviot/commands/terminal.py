"""Terminal output of the commands: progress, and errors as one sentence."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

import typer

from aviot.utils.printing import SafeConsole, SafeProgress

INTERRUPTED = 130  # exit code: 128 + SIGINT, as shells report it

EXTRAS = {
    "PIL": "video",
    "accelerate": "video",
    "av": "video",
    "transformers": "video",
    "yaml": "video",
    "deepspeed": "train",
    "peft": "train",
    "tensorboard": "train",
    "matplotlib": "plot",
    "pyarrow": "evaluate",
    "ray": "batch",
    "fastapi": "serve",
    "httpx2": "serve",
    "prometheus_client": "serve",
    "pydantic": "serve",
    "uvicorn": "serve",
}
"""The extra of this package that installs each optional module."""


@cache
def stderr_console() -> SafeConsole:
    """Return the only console on stderr: lines printed beside a live spinner must go through its console."""
    return SafeConsole(stderr=True)


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Show a spinner with the current step on stderr, if stderr is a terminal."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with SafeProgress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=stderr_console(),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("start", total=None)
        yield lambda doing: progress.update(task, description=doing)


@contextmanager
def mistakes(*, silent: bool = False) -> Iterator[None]:
    """Turn a user's mistake into one sentence and exit code 2; if silent, another process prints the sentence."""
    try:
        yield
    except KeyboardInterrupt as stopped:  # the entry point prints the message
        raise typer.Exit(INTERRUPTED) from stopped
    except ModuleNotFoundError as error:
        refuse(_not_importable(error))
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        if silent:
            raise typer.Exit(2) from error
        refuse(sentence)


@contextmanager
def hints(flags: Mapping[type[ValueError], str]) -> Iterator[None]:
    """Append to an error's message the flag that resolves it."""
    try:
        yield
    except tuple(flags) as error:
        raise ValueError(f"{error} ({flags[type(error)]})") from error


@contextmanager
def serving_at(host: str, port: int) -> Iterator[None]:
    """Raise ValueError for an address that cannot be bound."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot serve at {host}:{port} ({error.strerror}); try another --port or --host") from error


def _sentence(error: Exception) -> str | None:
    """Return the message for a user's mistake; None for an unexpected error."""
    if isinstance(error, ValueError | OSError):
        return str(error)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return "the GPU's memory is full; sample fewer frames, or use --device cpu"
    return None


def _not_importable(error: ModuleNotFoundError) -> str:
    """Return which module is missing; transformers reports so too if a package that it imports is broken."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ModuleNotFoundError) and cause.name is not None:
        return f"{cause.name} is not installed; {_how_to_install(cause.name)}"
    return (
        f"a package that transformers imports is broken here ({type(cause).__name__}: {cause}); install its version "
        "for the torch that is installed, or uninstall it (torchvision is not needed)"
    )


def _how_to_install(module: str) -> str:
    package = module.partition(".")[0]
    if package in EXTRAS:
        return f"in a clone: pip install --constraint constraints.txt '.[{EXTRAS[package]}]'"
    return f"pip install {package}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(text: str) -> None:
    """Print a line on stderr, apart from the report on stdout."""
    stderr_console().print(text, markup=False, highlight=False, soft_wrap=True)


def refuse(sentence: str, code: int = 2) -> NoReturn:
    """Print one sentence and end with an exit code."""
    stderr_console().print(f"aviot: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)
