"""Videos read ahead, encoded once and asked everything; what fails is a row like any other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from aviot.evaluation.config import Setting
from aviot.evaluation.item import Item
from aviot.evaluation.plan import Batch, Key, Visit
from aviot.evaluation.prompts import Instructions, ask_item
from aviot.evaluation.rows import answered_row, failed_row
from aviot.session import Answer, VideoLM, VideoSession
from aviot.utils.journal import Row
from aviot.video import ReadLimits, Video, read_isolated, stop_reading

Read = Callable[[Path], Video]


@dataclass(frozen=True)
class Interviewer:
    """A model and how it is asked."""

    lm: VideoLM
    instructions: Instructions
    max_new_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    limits: ReadLimits = field(default_factory=ReadLimits)

    def read(self, path: Path) -> Video:
        """Sample the frames of a video, in a process of its own."""
        return self.lm.backbone.read(path, reader=partial(read_isolated, limits=self.limits), **self.sampling)

    def answers(self, session: VideoSession, items: Sequence[Item], setting: Setting) -> list[Answer]:
        """Return greedy answers to several questions about one video; deterministic on one machine."""
        asked = [ask_item(item, self.instructions) for item in items]
        return session.answer_all(
            [session.prompt(one.text, span=one.span) for one in asked],
            budget=setting.budget,
            method=setting.compressor,
            max_new_tokens=self.max_new_tokens,
        )


def ask_visits(who: Interviewer, items: Sequence[Item], visits: Iterable[Visit], done: frozenset[Key]) -> Iterator[Row]:
    """Rows of everything that is not done, visit after visit; a batch that is half done is asked whole again."""
    pending = [visit for each in visits if (visit := each.without(done)).batches]
    for visit, video in _read_ahead(pending, who.read):
        session = _opened(who, video) if isinstance(video, Video) else video
        for batch in visit.batches:
            rows = _rows(who, video, session, batch, items)
            yield from (row for row, key in zip(rows, batch.keys, strict=True) if key not in done)


def _opened(who: Interviewer, video: Video) -> VideoSession | str:
    """Return the encoded video, or why it could not be encoded."""
    try:
        return who.lm.open(video)
    except Exception as error:
        return _told(error)


def _rows(
    who: Interviewer, video: Video | str, session: VideoSession | str, batch: Batch, items: Sequence[Item]
) -> list[Row]:
    """Return the rows of one batch; if it fails as a whole, its questions are asked one at a time."""
    if isinstance(video, str) or isinstance(session, str):
        return _failed(batch, items, str(session), video if isinstance(video, Video) else None)
    asked = [items[number] for number in batch.items]
    try:
        answers = who.answers(session, asked, batch.setting)
    except Exception as error:
        reason = _told(error)
        if len(asked) == 1:
            return _failed(batch, items, reason, video)
        alone = [Batch((number,), batch.setting) for number in batch.items]
        return [row for one in alone for row in _rows(who, video, session, one, items)]
    return [
        answered_row(number, items[number], batch.setting, answer, video)
        for number, answer in zip(batch.items, answers, strict=True)
    ]


def _failed(batch: Batch, items: Sequence[Item], reason: str, video: Video | None) -> list[Row]:
    return [failed_row(number, items[number], batch.setting, reason, video) for number in batch.items]


def _read_ahead(visits: Sequence[Visit], read: Read) -> Iterator[tuple[Visit, Video | str]]:
    """Each visit with its video, or why there is none; the next one is decoded meanwhile."""

    def load(visit: Visit) -> Video | str:
        try:
            return read(visit.video)
        except Exception as error:  # told by the item's name: rows are the same wherever the videos lie
            return _told(error).replace(str(visit.video), visit.name)

    with ThreadPoolExecutor(1) as reader:
        upcoming = reader.submit(load, visits[0]) if visits else None
        try:
            for place, visit in enumerate(visits):
                video = upcoming.result() if upcoming is not None else ""
                upcoming = reader.submit(load, visits[place + 1]) if place + 1 < len(visits) else None
                yield visit, video
        except BaseException:  # Ctrl-C does not wait for a file's deadline
            while upcoming is not None and not upcoming.done():
                stop_reading()
                wait([upcoming], timeout=0.1)
            raise


def _told(error: Exception) -> str:
    """Why one item failed, in a line; a device that is broken for good ends the run, which can be resumed."""
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return "the GPU's memory is full; compress more, sample fewer frames or ask fewer at a time (--batch)"
    if isinstance(error, torch.AcceleratorError):
        raise error
    said = " ".join(str(error).split())
    return said if isinstance(error, ValueError | OSError) and said else f"{type(error).__name__}: {said}"
