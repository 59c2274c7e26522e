"""Predictions: each video is read ahead, encoded once and asked all its questions; a failure is a row of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from aviot.evaluation.batching import ItemBatch, RowKey, VideoBatches
from aviot.evaluation.config import Setting
from aviot.evaluation.item import Instructions, Item, item_prompt
from aviot.evaluation.results import answered_row, failed_row
from aviot.session import Answer, VideoLM, VideoSession
from aviot.utils.journal import Row
from aviot.video import ReadLimits, Video, read_isolated, stop_reading

Read = Callable[[Path], Video]


@dataclass(frozen=True)
class Predictor:
    """A model, and how items are put to it; `turn` is held while the model works, if several threads share it."""

    lm: VideoLM
    instructions: Instructions
    max_new_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    limits: ReadLimits = field(default_factory=ReadLimits)
    turn: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def read(self, path: Path) -> Video:
        """Sample the frames of a video, in a process of its own."""
        return self.lm.backbone.read(path, reader=partial(read_isolated, limits=self.limits), **self.sampling)

    def answers(self, session: VideoSession, items: Sequence[Item], setting: Setting) -> list[Answer]:
        """Return greedy answers to several questions about one video; deterministic on one machine."""
        asked = [item_prompt(item, self.instructions) for item in items]
        with self.turn:
            return session.answer_all(
                [session.prompt(one.text, span=one.span) for one in asked],
                budget=setting.budget,
                method=setting.method,
                max_new_tokens=self.max_new_tokens,
            )


def predict_videos(
    predictor: Predictor, items: Sequence[Item], videos: Iterable[VideoBatches], done: frozenset[RowKey]
) -> Iterator[Row]:
    """Yield the rows that are not done, video after video; a partly done batch is predicted whole again."""
    pending = [remaining for each in videos if (remaining := each.without(done)).batches]
    for batches, video in _read_ahead(pending, predictor.read):
        session = _opened(predictor, video) if isinstance(video, Video) else video
        for batch in batches.batches:
            rows = _rows(predictor, video, session, batch, items)
            yield from (row for row, key in zip(rows, batch.keys, strict=True) if key not in done)


def _opened(predictor: Predictor, video: Video) -> VideoSession | str:
    """Return the encoded video, or why it could not be encoded."""
    try:
        with predictor.turn:
            return predictor.lm.open(video)
    except Exception as error:
        return _reason(error)


def _rows(
    predictor: Predictor, video: Video | str, session: VideoSession | str, batch: ItemBatch, items: Sequence[Item]
) -> list[Row]:
    """Return the rows of one batch; if it fails as a whole, its questions are asked one at a time."""
    if isinstance(video, str) or isinstance(session, str):
        return _failed(batch, items, str(session), video if isinstance(video, Video) else None)
    asked = [items[number] for number in batch.items]
    try:
        answers = predictor.answers(session, asked, batch.setting)
    except Exception as error:
        reason = _reason(error)
        if len(asked) == 1:
            return _failed(batch, items, reason, video)
        alone = [ItemBatch((number,), batch.setting) for number in batch.items]
        return [row for one in alone for row in _rows(predictor, video, session, one, items)]
    return [
        answered_row(number, items[number], batch.setting, answer, video)
        for number, answer in zip(batch.items, answers, strict=True)
    ]


def _failed(batch: ItemBatch, items: Sequence[Item], reason: str, video: Video | None) -> list[Row]:
    return [failed_row(number, items[number], batch.setting, reason, video) for number in batch.items]


def _read_ahead(videos: Sequence[VideoBatches], read: Read) -> Iterator[tuple[VideoBatches, Video | str]]:
    """Yield each video's batches with the video, or the reason why it cannot be read; decode the next one meanwhile."""

    def load(batches: VideoBatches) -> Video | str:
        try:
            return read(batches.video)
        except Exception as error:  # with the item's name: rows do not depend on where the videos are
            return _reason(error).replace(str(batches.video), batches.name)

    with ThreadPoolExecutor(1) as reader:
        upcoming = reader.submit(load, videos[0]) if videos else None
        try:
            for place, batches in enumerate(videos):
                video = upcoming.result() if upcoming is not None else ""
                upcoming = reader.submit(load, videos[place + 1]) if place + 1 < len(videos) else None
                yield batches, video
        except BaseException:  # Ctrl-C does not wait for a file's deadline
            while upcoming is not None and not upcoming.done():
                stop_reading()
                wait([upcoming], timeout=0.1)
            raise


def _reason(error: Exception) -> str:
    """Return why an item failed, in one line; an unusable device raises and ends the run, which can be resumed."""
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return "the GPU's memory is full; compress more, sample fewer frames or ask fewer questions per batch"
    if isinstance(error, torch.AcceleratorError):
        raise error
    said = " ".join(str(error).split())
    return said if isinstance(error, ValueError | OSError) and said else f"{type(error).__name__}: {said}"
