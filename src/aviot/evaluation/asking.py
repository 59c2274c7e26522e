"""Videos read ahead, encoded once and asked everything; what fails is a row like any other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aviot.evaluation.batching import Batch, RowKey, VideoBatches
from aviot.evaluation.config import Setting
from aviot.evaluation.item import Instructions, Item, item_prompt
from aviot.evaluation.results import answered_row, failed_row
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.utils.journal import Row
from aviot.video import ReadLimits, Video, read_isolated, stop_reading

Read = Callable[[Path], Video]


@dataclass(frozen=True)
class Interviewer:
    """A model and how it is asked."""

    model: AviotForConditionalGeneration
    processor: AviotProcessor
    instructions: Instructions
    max_new_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    limits: ReadLimits = field(default_factory=ReadLimits)

    @property
    def tokens_per_frame(self) -> int:
        """The visual tokens of one frame, or of one support that stands for several."""
        return self.model.model.connector.tokens_per_support

    def read(self, path: Path) -> Video:
        """Sample the frames of a video, in a process of its own."""
        return self.processor.read(path, reader=partial(read_isolated, limits=self.limits), **self.sampling)

    @torch.inference_mode()
    def encode(self, video: Video) -> Tensor:
        """Vision features [T,S,D] that every question about a video shares."""
        return self.model.encode(self.processor.pixels(np.asarray(video.frames)), [len(video)])[0]

    @torch.inference_mode()
    def replies(self, video: Video, features: Tensor, items: Sequence[Item], setting: Setting) -> list[str]:
        """Greedy answers to several questions about one video; deterministic on one machine."""
        prompts = []
        for item in items:
            asked = item_prompt(item, self.instructions)
            prompts.append(self.processor.encode_prompt(self.processor.prompt(asked.text, video, span=asked.span)))
        padded = {name: tensor.to(self.model.device) for name, tensor in self.processor.pad_prompts(prompts).items()}
        tokens = self.model.generate(
            **padded,
            encoded=[features],
            ratio=setting.ratio,
            compressor=setting.compressor,  # type: ignore[arg-type]
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
        )
        return [text.strip() for text in self.processor.tokenizer.batch_decode(tokens, skip_special_tokens=True)]


def ask_visits(
    who: Interviewer, items: Sequence[Item], visits: Iterable[VideoBatches], done: frozenset[RowKey]
) -> Iterator[Row]:
    """Rows of everything that is not done, visit after visit; a batch that is half done is asked whole again."""
    pending = [visit for each in visits if (visit := each.without(done)).batches]
    for visit, video in _read_ahead(pending, who.read):
        features = _features(who, video) if isinstance(video, Video) else video
        for batch in visit.batches:
            rows = _rows(who, video, features, batch, items)
            yield from (row for row, key in zip(rows, batch.keys, strict=True) if key not in done)


def _features(who: Interviewer, video: Video) -> Tensor | str:
    """Return the encoded video, or why it could not be encoded."""
    try:
        return who.encode(video)
    except Exception as error:
        return _told(error)


def _rows(
    who: Interviewer, video: Video | str, features: Tensor | str, batch: Batch, items: Sequence[Item]
) -> list[Row]:
    """Return the rows of one batch; if it fails as a whole, its questions are asked one at a time."""
    if isinstance(video, str) or isinstance(features, str):
        return _failed(batch, items, str(features), video if isinstance(video, Video) else None)
    asked = [items[number] for number in batch.items]
    try:
        replies = who.replies(video, features, asked, batch.setting)
    except Exception as error:
        reason = _told(error)
        if len(asked) == 1:
            return _failed(batch, items, reason, video)
        alone = [Batch((number,), batch.setting) for number in batch.items]
        return [row for one in alone for row in _rows(who, video, features, one, items)]
    tokens = who.tokens_per_frame
    return [
        answered_row(number, items[number], batch.setting, reply, video=video, tokens_per_frame=tokens)
        for number, reply in zip(batch.items, replies, strict=True)
    ]


def _failed(batch: Batch, items: Sequence[Item], reason: str, video: Video | None) -> list[Row]:
    return [failed_row(number, items[number], batch.setting, reason, video) for number in batch.items]


def _read_ahead(visits: Sequence[VideoBatches], read: Read) -> Iterator[tuple[VideoBatches, Video | str]]:
    """Each visit with its video, or why there is none; the next one is decoded meanwhile."""

    def load(visit: VideoBatches) -> Video | str:
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
