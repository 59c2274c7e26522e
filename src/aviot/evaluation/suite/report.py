"""What a suite found."""

from dataclasses import dataclass

from aviot.evaluation.suite.comparison import Line, SettingDifference
from aviot.evaluation.suite.model import Model

NOTHING = "\u2013"
"""What tables say where there is no figure."""


@dataclass(frozen=True)
class Missing:
    """A benchmark that was not run, why, and what the paper says for the first setting."""

    benchmark: str
    title: str
    reason: str
    paper: str


@dataclass(frozen=True)
class SuiteReport:
    """All figures of a suite, and what is not among them; `limit` is the number of questions asked per benchmark."""

    model: Model
    sampling: str
    lines: tuple[Line, ...]
    missing: tuple[Missing, ...]
    differences: tuple[SettingDifference, ...] = ()
    limit: int | None = None
    caveats: tuple[str, ...] = ()
