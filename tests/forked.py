"""Processes of their own that start in no time: forked from one that has done nothing but import the libraries."""

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

LIBRARIES = ["aviot.cli", "aviot.evaluation.run", "aviot.training.run", "peft", "deepspeed.comm.torch"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


@dataclass(frozen=True)
class Ended:
    """How a process ended, as subprocess would say, and what it printed."""

    returncode: int | None
    stdout: str
    stderr: str


def run_forked(function: Callable, *arguments: str, environments: tuple[dict[str, str], ...] = ({},)) -> list[Ended]:
    """Call a function in a process for each environment, all at once, and wait for them to end; killed after 240 s."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(len(environments))]
        processes = [
            _context().Process(target=_enter, args=(environment, str(path), function, arguments))
            for environment, path in zip(environments, paths, strict=True)
        ]
        for process in processes:
            process.start()
        limit = time.monotonic() + 240
        for process in processes:
            process.join(max(0, limit - time.monotonic()))
            process.kill()
            process.join()
        return [
            Ended(process.exitcode, path.with_suffix(".out").read_text(), path.with_suffix(".err").read_text())
            for process, path in zip(processes, paths, strict=True)
        ]


def ranks(count: int) -> tuple[dict[str, str], ...]:
    """What torchrun tells each process of a run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    sizes = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return tuple({"RANK": str(rank), "LOCAL_RANK": str(rank)} | sizes | meeting for rank in range(count))


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    with _environment():
        forkserver.ensure_running()
    return context


@contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    yield
    os.environ.clear()
    os.environ.update(before)


def _enter(environment: dict[str, str], path: str, function: Callable, arguments: tuple[str, ...]) -> None:
    os.environ.update(environment)
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(path + suffix, os.O_WRONLY | os.O_CREAT), number)
    function(*arguments)
