"""Processes of their own that start in no time: forked from one that has done nothing but import the libraries."""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

LIBRARIES = ["aviot.cli", "aviot.evaluation.run", "aviot.training.run", "peft", "deepspeed.comm.torch"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
SECONDS = 240


@dataclass(frozen=True)
class Ended:
    """How a process ended, as subprocess would say, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run_forked(function: Callable, *arguments: str, environments: tuple[dict[str, str], ...] = ({},)) -> list[Ended]:
    """Call a function in a process for each environment, all at once; if one fails the others are killed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(len(environments))]
        for path in paths:
            path.with_suffix(".out").touch()
            path.with_suffix(".err").touch()
        processes = [
            _context().Process(target=_enter, args=(environment, str(path), function, arguments))
            for environment, path in zip(environments, paths, strict=True)
        ]
        for process in processes:
            process.start()
        _wait(processes)
        printed = [[path.with_suffix(suffix).read_text() for suffix in (".out", ".err")] for path in paths]
    return [Ended(process.exitcode, *told) for process, told in zip(processes, printed, strict=True)]


def _wait(processes: list[ForkServerProcess]) -> None:
    limit = time.monotonic() + SECONDS
    while alive := [process for process in processes if process.is_alive()]:
        ended = connection.wait([process.sentinel for process in alive], timeout=limit - time.monotonic())
        if not ended or any(process.exitcode for process in processes):
            for process in alive:
                process.kill()
                process.join()
        if not ended:
            raise TimeoutError(f"a process must end within {SECONDS} s, and {len(alive)} have not")


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
        os.dup2(os.open(path + suffix, os.O_WRONLY), number)
    try:
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # libraries' threads, forked or meeting over a network, have waited for each other at the end
