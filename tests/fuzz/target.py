"""What a fuzz target is: how its inputs are written, what reads them, and the limits that the reading must keep."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

MEGABYTE = 1_000_000


class Broken(Exception):
    """A property that does not hold, such as frame times that do not increase."""


class Refused(ValueError):
    """A refusal by a layer whose documented error is ValueError itself."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn a ValueError of a layer that has no error type of its own into Refused."""
    try:
        yield
    except ValueError as error:
        raise Refused(*error.args) from error


@dataclass(frozen=True)
class Limits:
    """The most that one case may use. `bytes` counts what the process held before it began, about 500 MB."""

    cpu_seconds: float = 10.0
    wall_seconds: float = 30.0
    bytes: int = 1_500 * MEGABYTE


@dataclass(frozen=True, kw_only=True)
class Target:
    """One kind of input.

    `prepare` writes valid sources once; `control` copies a valid input out of them, and `write` a mutated one, which
    must depend on its random generator and the sources alone. `check` reads such a folder and returns a word or two
    about what it found; it raises one of `errors` where the input is refused, and `Broken` where a property does not
    hold. `changes` are patterns of files below the folder that `check` may write.
    """

    name: str
    prepare: Callable[[Path], None]
    control: Callable[[Path, Path], None]
    write: Callable[[Random, Path, Path], str]
    check: Callable[[Path], str]
    errors: Callable[[], tuple[type[Exception], ...]]
    modules: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


def generator(target: str, seed: int, case: int) -> Random:
    """Return the random generator of a case: a function of these three and of nothing else."""
    return Random(f"{target}/{seed}/{case}")


def require(holds: bool, what: str) -> None:
    """Raise Broken unless a property holds."""
    if not holds:
        raise Broken(what)
