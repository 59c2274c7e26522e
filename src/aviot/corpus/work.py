"""The work of one worker: all questions about one video at a time, encoded once.

Work and rows travel between processes as JSON. While one video's questions are answered, the next video is read.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aviot.corpus.config import CorpusConfig
from aviot.evaluation.batching import ItemBatch, VideoBatches
from aviot.evaluation.config import Setting
from aviot.evaluation.item import Instructions, Item, Prompt, item_prompt
from aviot.utils.printing import json_text
from aviot.video.checks import ReadLimits

IN_FLIGHT = 2
"""Videos that a worker has at a time: one whose questions are answered, and one that is read meanwhile."""


@dataclass(frozen=True)
class VideoWork:
    """The questions about one video that are to be asked.

    `batches` have the numbers of questions that share a batch, and `done` those whose answers are there already: an
    answer does not depend on where a batch was interrupted. `prompts` have each question's text and span.
    """

    video: str
    name: str
    batches: tuple[tuple[int, ...], ...]
    prompts: dict[int, tuple[str, tuple[int, int]]]
    done: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, asked: VideoBatches, items: Sequence[Item], instructions: Instructions, done: frozenset[int]
    ) -> "VideoWork":
        """Return the work that is left of a video's batches."""
        batches = tuple(batch.items for batch in asked.batches if not done.issuperset(batch.items))
        numbers = [number for batch in batches for number in batch]
        prompts = {number: item_prompt(items[number], instructions) for number in numbers}
        return cls(
            video=str(asked.video.absolute()),
            name=asked.name,
            batches=batches,
            prompts={number: (prompt.text, prompt.span) for number, prompt in prompts.items()},
            done=tuple(sorted(done.intersection(numbers))),
        )

    def to_json(self) -> str:
        """Return the work as text."""
        return json_text(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "VideoWork":
        """Read what `to_json` wrote."""
        data = json.loads(text)
        prompts = {int(number): (said, (first, last)) for number, (said, (first, last)) in data["prompts"].items()}
        batches = tuple(tuple(batch) for batch in data["batches"])
        return cls(data["video"], data["name"], batches, prompts, tuple(data["done"]))


@dataclass(frozen=True)
class WorkerPlan:
    """The parts of a configuration that a worker needs, as plain data that every machine can read."""

    model: str
    device: str
    method: str
    budget: str | None
    max_new_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    loading: dict[str, Any] = field(default_factory=dict)
    base: str | None = None

    @classmethod
    def of(cls, config: CorpusConfig, device: str) -> "WorkerPlan":
        """Return the plan for workers on a device."""
        return cls(
            model=str(config.model.absolute()),
            device=device,
            method=config.method,
            budget=None if config.budget is None else config.budget.text,
            max_new_tokens=config.max_new_tokens,
            sampling=dict(config.sampling),
            limits=asdict(config.limits),
            loading=asdict(config.loading),
            base=None if config.base is None else str(config.base.absolute()),
        )


class Worker:
    """A loaded model that answers the questions about one video after another; rows come out one by one.

    Calls from two threads take turns on the model, while each reads its video.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        from transformers.utils import logging

        from aviot.budget import parse_budget
        from aviot.methods.registry import compresses
        from aviot.session import VideoLM

        logging.disable_progress_bar()
        lm = VideoLM.from_pretrained(plan.model, base=plan.base, device=plan.device, **plan.loading)
        lm.backbone.method(plan.method)  # refuses one that needs parts which this model does not have
        self._lm, self._plan, self._turn = lm, plan, threading.Lock()
        budget = lm.backbone.default_budget if plan.budget is None else parse_budget(plan.budget)
        self._setting = Setting.of(plan.method, budget if compresses(plan.method) else None)

    def __call__(self, row: dict[str, Any]) -> Iterator[dict[str, str]]:
        """Yield the evaluation's rows of one video's questions, each with its question's number."""
        import torch

        work = VideoWork.from_json(row["work"])
        try:
            for number, result in answers(self._lm, work, self._setting, self._plan, self._turn):
                yield {"row": json_text({"number": number, "result": result})}
        except torch.AcceleratorError:
            os._exit(1)  # the device is lost to this process; a new one asks again


def answers(
    lm: Any, work: VideoWork, setting: Setting, plan: WorkerPlan, turn: threading.Lock
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the evaluation's row of each question that is not done; `turn` is held while `lm` works."""
    from aviot.evaluation.prediction import Predictor, predict_videos

    numbers = [number for batch in work.batches for number in batch]
    place = {number: index for index, number in enumerate(numbers)}
    items = [_item(work.name, *work.prompts[number]) for number in numbers]
    predictor = Predictor(lm, Instructions(), plan.max_new_tokens, plan.sampling, ReadLimits(**plan.limits), turn=turn)
    batches = tuple(ItemBatch(tuple(place[number] for number in batch), setting) for batch in work.batches)
    done = frozenset((place[number], setting.name) for number in work.done)
    for row in predict_videos(predictor, items, [VideoBatches(Path(work.video), work.name, batches)], done):
        yield numbers[row["item"]], row


def _item(video: str, text: str, span: tuple[int, int]) -> Item:
    """Return an item that is asked with this prompt."""
    return Item(id="", video=video, question=text, options=(), right=None, answers=(), prompt=Prompt(text, span))
