"""Requests to answer questions about a video, checked at construction: before torch is imported or a frame decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aviot.budget import AutoBudget, Budget
from aviot.methods import registry
from aviot.utils.machine import check_device_name
from aviot.utils.values import as_whole, require_whole
from aviot.video.checks import DEFAULT_LIMITS, ReadLimits, check_source
from aviot.video.options import check_decoder
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
    sampling_mode: str = "times"
    decoder: str = "auto"
    read_timeout: float = DEFAULT_LIMITS.seconds
    device: str = "auto"

    def __post_init__(self) -> None:
        check_questions(self.questions)
        registry.check_name(self.method)
        require_whole(self, "max_new_tokens")
        check_sampling(self.sampling)
        check_decoder(self.decoder)
        ReadLimits(seconds=self.read_timeout)
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
        return given_sampling(self)

    @property
    def reading(self) -> dict[str, Any]:
        """The arguments of `VideoLM.open` for this video: its sampling, and a reader with time limit and decoder."""
        from aviot.video import read_video

        how: dict[str, Any] = {"limits": ReadLimits(seconds=self.read_timeout)}
        if self.decoder != "auto":
            how["decoder"] = self.decoder
        return self.sampling | {"reader": partial(read_video, **how)}


def given_sampling(options: Any) -> dict[str, Any]:
    """Return the sampling that a request or the options of one have, without what is left to the checkpoint."""
    names = ("fps", "max_frames", "frames", "source_fps")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    return given if options.sampling_mode == "times" else given | {"sampling": options.sampling_mode}


def check_sampling(chosen: Mapping[str, Any]) -> None:
    """Raise ValueError for invalid rates or numbers of frames; None stands for the checkpoint's own."""
    given = {name: value for name, value in chosen.items() if value is not None}
    source_fps, mode = given.pop("source_fps", None), given.pop("sampling", "times")
    Sampling(**given, mode=mode)
    if source_fps is not None:
        check_rate("source_fps", source_fps)


def check_question(question: str) -> None:
    """Raise ValueError for a question that is empty or not valid text."""
    if not isinstance(question, str):
        raise ValueError(f"a question must be text, got {type(question).__name__}")
    if not question.strip():
        raise ValueError("the question is empty; ask something about the video")
    if _is_not_text(question):
        raise ValueError("the question has bytes that are not UTF-8; give it as UTF-8 text")


def check_history(history: Sequence[tuple[str, str]]) -> None:
    """Raise ValueError unless a conversation's earlier turns are pairs of a question and an answer, both text."""
    is_list = isinstance(history, Sequence) and not isinstance(history, (str, bytes))
    if not is_list or not all(isinstance(turn, (tuple, list)) and len(turn) == 2 for turn in history):
        raise ValueError(f"history must be a list of pairs (question, answer), got {history!r:.80}")
    for number, (question, answer) in enumerate(history):
        try:
            check_question(question)
        except ValueError as error:
            raise ValueError(f"turn {number} of the history: {error}") from error
        if not isinstance(answer, str):
            raise ValueError(f"turn {number} of the history: its answer must be text, got {type(answer).__name__}")
        if _is_not_text(answer):
            raise ValueError(f"turn {number} of the history: its answer has bytes that are not UTF-8")


def check_max_new_tokens(count: int) -> None:
    """Raise ValueError unless an answer may have at least one token."""
    found = as_whole(count)
    if found is None or found < 1:
        raise ValueError(f"max_new_tokens must be a whole number of at least 1, got {count!r}")


def _is_not_text(text: str) -> bool:
    """Return whether text has lone surrogates, which stand for bytes that are not UTF-8."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


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
