"""What every verb shares at a terminal: the checkpoint, progress, and mistakes in one sentence."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aviot.machine import device_named
from aviot.small.embedded import KNOWS

if TYPE_CHECKING:
    from aviot.models import AviotForConditionalGeneration, AviotProcessor

SMALL_ANSWERS = f"{KNOWS}; --model names another."


def chosen_model(model: Path | None) -> Path:
    """The checkpoint that was named, or the small model of the package, which says what it is good for."""
    if model is not None:
        return model
    from aviot.small.embedded import embedded_model

    folder = embedded_model()
    say(SMALL_ANSWERS)
    return folder


def load_model(model: Path | None, device: str, report: Any) -> "tuple[AviotForConditionalGeneration, AviotProcessor]":
    """A checkpoint on its device, ready to answer."""
    place = device_named(device)
    os.environ.setdefault("DS_ACCELERATOR", place.type)  # DeepSpeed, if it is there, else warns of no GPU
    from transformers.utils import logging

    from aviot.models import AviotForConditionalGeneration, AviotProcessor
    from aviot.models.checkpoint import folder_here

    logging.disable_progress_bar()
    folder = folder_here(chosen_model(model))
    report("load")
    processor = AviotProcessor.from_pretrained(folder)
    return AviotForConditionalGeneration.from_pretrained(folder).eval().to(place), processor


@contextmanager
def working() -> Iterator[Any]:
    """A spinner on stderr that says what is being done, where there is someone to see it."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("start", total=None)
        yield lambda doing: progress.update(task, description=doing)


@contextmanager
def mistakes(*, silent: bool = False) -> Iterator[None]:
    """A user's mistake is one sentence and exit code 2, no traceback; no sentence where another process says it."""
    try:
        yield
    except (ValueError, OSError) as error:
        if silent:
            raise typer.Exit(2) from error
        refuse(str(error))
    except torch.OutOfMemoryError:
        refuse("the GPU's memory is full; sample fewer frames, or say --device cpu")
    except ModuleNotFoundError as error:
        refuse(f"{error.name} is not installed; in a clone: pip install --constraint constraints.txt '.[train]'")


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str) -> str:
    """A model's or a stranger's words without what would steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def say(text: str) -> None:
    """To the person, beside the report."""
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def refuse(sentence: str, code: int = 2) -> NoReturn:
    """One sentence, and the end."""
    Console(stderr=True).print(f"aviot: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)
