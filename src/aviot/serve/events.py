"""Events of a request on its way to an answer, as the replies tell it."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from aviot.auto_budget import Step
from aviot.budget import Budget
from aviot.engine.base import Finish


@dataclass(frozen=True)
class Begun:
    """The beginning of an answer: the size of its video."""

    frames: int
    visual_before: int


@dataclass(frozen=True)
class Ended:
    """The end of an answer; of an automatic budget with the steps that were tried, and why the last was accepted."""

    finish: Finish
    tokens: int
    prompt_tokens: int
    visual_after: int
    budget: Budget
    asked: "AskedAbout"
    stream: dict[str, Any] | None
    provenance: dict[str, Any] | None
    steps: tuple[Step, ...] = ()
    reason: str = ""


Event = Begun | Ended | str
Emit = Callable[[Event], None]


@dataclass(frozen=True)
class AskedAbout:
    """The data that explains an answer: the video's key (None: a stream), and the question with its settings."""

    video: Hashable | None
    question: str
    method: str
    budget: Budget
    max_new_tokens: int
    history: tuple[tuple[str, str], ...] = ()
