"""Requests to answer questions about a video, checked at construction: before torch is imported or a frame decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.budget import AutoBudget, Budget
from aviot.methods import registry
from aviot.utils.machine import check_device_name
from aviot.utils.values import require_whole
from aviot.video.checks import check_source
from aviot.video.sampling import Sampling, check_rate

MAX_NEW_TOKENS = 64
"""Default for the longest answer, in tokens."""

ADAPTER_FILE = "aviot_adapter.json"
"""The file that makes a folder an adapter for another model, which stands where a whole checkpoint does."""

MOST_QUESTIONS = 4  # that one page of the explorer compares


@dataclass(frozen=True, kw_only=True)
class Request:
    """Questions about one video, and the settings of its sampling and compression.

    `budget`, `fps` and `max_frames` of None stand for the checkpoint's own values, `model` of None for the bundled demo
    model. Raises ValueError, with what was expected, for anything that could not be answered.
    """

    video: Path
    questions: Sequence[str]
    model: Path | None = None
    budget: Budget | AutoBudget | None = None
    method: str = registry.DEFAULT
    max_new_tokens: int = MAX_NEW_TOKENS
    fps: float | None = None
    max_frames: int | None = None
    frames: int | None = None
    source_fps: float | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        check_questions(self.questions)
        registry.check_name(self.method)
        require_whole(self, "max_new_tokens")
        check_sampling(self.sampling)
        check_device_name(self.device)
        check_source(self.video, source_fps=self.source_fps)
        if self.model is not None:
            checkpoint_folder(self.model)

    @property
    def fixed_budget(self) -> Budget | None:
        """The budget, for what compresses without an answer that could choose it."""
        return None if self.budget is None else Budget.of(self.budget)

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling options that were given, as arguments of `read_video`."""
        names = ("fps", "max_frames", "frames", "source_fps")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def check_sampling(chosen: Mapping[str, Any]) -> None:
    """Raise ValueError for invalid rates or numbers of frames; None stands for the checkpoint's own."""
    given = {name: value for name, value in chosen.items() if value is not None}
    source_fps = given.pop("source_fps", None)
    Sampling(**given)
    if source_fps is not None:
        check_rate("source_fps", source_fps)


def check_question(question: str) -> None:
    """Raise ValueError for a question that is empty or not valid text."""
    if not isinstance(question, str):
        raise ValueError(f"a question must be text, got {type(question).__name__}")
    if not question.strip():
        raise ValueError("the question is empty; ask something about the video")
    if any("\ud800" <= letter <= "\udfff" for letter in question):
        raise ValueError("the question has bytes that are not UTF-8; give it as UTF-8 text")


def check_questions(questions: Sequence[str], most: int | None = None) -> None:
    """Raise ValueError for no questions, more than `most`, or an invalid one."""
    if not questions:
        raise ValueError("no question was given; ask at least one")
    if most is not None and len(questions) > most:
        raise ValueError(f"ask at most {most} questions at a time, got {len(questions)}")
    for question in questions:
        check_question(question)


def check_compresses(name: str) -> None:
    """Raise ValueError for an unknown method, and for one that does not compress and so leaves nothing to explain."""
    registry.check_name(name)
    if not registry.compresses(name):
        raise ValueError(f"method {name} does not compress, so there is nothing to look at; choose one that compresses")


def checkpoint_folder(name: str | Path) -> Path:
    """Return a checkpoint's directory, which must be on this machine; nothing is downloaded."""
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; name the directory of a checkpoint on this machine")
    if not (folder / "config.json").is_file() and not (folder / ADAPTER_FILE).is_file():
        raise ValueError(f"{folder} has no config.json; name the directory of a checkpoint, with its safetensors")
    return folder
