"""Sheets of questions answered in every way: a video is drawn once, and encoded once by each encoder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from aviot.models import AviotForConditionalGeneration
from aviot.models.variant import variant
from aviot.video.sampling import Sampling
from aviot_lab.demo_model.accuracy import Sheet
from aviot_lab.demo_model.learning import Answers, answer, encode
from aviot_lab.demo_model.lessons import Lesson, LessonWriter
from aviot_lab.reproduce.rows import Row, Weights, aviot, hearing_rows, rows_of
from aviot_lab.reproduce.separation import distances, rotated
from aviot_lab.reproduce.size import Size

Record = dict[str, Any]
TellRow = Callable[[int, int], None]  # the row that is answered next, counted from 1, and how many there are


class Examiner:
    """Models of the same shape, and the rows that they are asked for; `tell` is called before each row."""

    def __init__(
        self,
        models: Mapping[Weights, AviotForConditionalGeneration],
        rows: Sequence[Row],
        size: Size,
        writer: LessonWriter,
        tell: TellRow = lambda row, rows: None,
    ) -> None:
        self.size, self.writer, self.rows, self.tell = size, writer, rows, tell
        self.models = {row: variant(models[row.weights], **dict(row.switches)) for row in rows}
        self.encoders = {name: _same_encoder(models, name) for name in models}
        self.base = dict(models)

    @torch.no_grad()
    def short(self, sheet: Sheet) -> Record:
        """Answers about short videos, what the gates and the allocation did, and how far the question moved them."""
        rows = rows_of("short", self.rows)
        scenes = [scene.index for scene, _ in sheet.rows]
        features = {name: self._encode(name, sheet) for name in {self.encoders[row.weights] for row in rows}}
        hearing = hearing_rows(self.size)
        usage_rows = {aviot(ratio): f"{ratio:g}" for ratio in self.size.ratios}
        right: dict[str, Tensor] = {}
        usage: dict[str, dict[str, Tensor]] = {}
        kept: dict[str, Answers] = {}
        for row in self._told(rows):
            found = self._answer(row, features[self.encoders[row.weights]], sheet.lesson, rotated(scenes))
            right[row.key] = found.right
            if row in usage_rows and found.compression is not None and found.compression.usage is not None:
                shares, entropy = found.compression.usage
                usage[usage_rows[row]] = {**shares, "budget_entropy": entropy}
            if row in (hearing["matched"], hearing["none"]):
                kept[row.hears] = found
        told, untold = kept["matched"].compression, kept["none"].compression
        apart = [] if told is None or untold is None else [asdict(one) for one in distances(scenes, told, untold)]
        return _about(sheet) | {
            "right": _read(right),
            "usage": {ratio: _read(values) for ratio, values in usage.items()},
            "distances": apart,
        }

    @torch.no_grad()
    def long(self, sheet: Sheet) -> Record:
        """Answers about long videos, from all frames or from some; each frame is encoded once."""
        at = Sampling(frames=self.size.sampled).indices(self.size.long_frames, sheet.scenes[0].fps)
        fewer = self.writer.conversations(sheet.rows, frames=at, sampled=True)
        features = self._encode(self.encoders["model"], sheet)
        right: dict[str, Tensor] = {}
        for row in self._told(rows_of("long", self.rows)):
            u, lesson = (features, sheet.lesson) if row.sight == "long" else (features[:, list(at)], fewer)
            right[row.key] = self._answer(row, u, lesson).right
        return _about(sheet) | {"right": _read(right)}

    def _told(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield each row after telling which it is."""
        for number, row in enumerate(rows, start=1):
            self.tell(number, len(rows))
            yield row

    def _encode(self, name: Weights, sheet: Sheet) -> Tensor:
        return encode(self.base[name], sheet.lesson.plans, sheet.lesson.videos)

    def _answer(self, row: Row, u: Tensor, lesson: Lesson, turned: Sequence[int] | None = None) -> Answers:
        found = answer(
            self.models[row],
            u,
            lesson,
            ratio=row.ratio,
            compressor=row.compressor,
            hears=turned if row.hears == "rotated" else None,
            ask=row.hears != "none",
        )
        if found.compression is not None:
            found.compression.check()
        if not torch.isfinite(found.language):
            raise ValueError(f"row {row.key}: the decoder's loss is not finite (NaN or infinity); check the weights")
        return found


def _about(sheet: Sheet) -> Record:
    return {
        "scenes": [scene.index for scene, _ in sheet.rows],
        "families": [question.family for question in sheet.questions],
    }


def _read(values: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Values of every row, off the device in one go."""
    table = torch.stack([value.double() for value in values.values()]).cpu().tolist()
    return {name: [round(value, 6) for value in row] for name, row in zip(values, table, strict=True)}


def _same_encoder(models: Mapping[Weights, AviotForConditionalGeneration], name: Weights) -> Weights:
    """The first model whose encoder has the same weights as this one's: fine-tuning leaves the encoder alone."""
    mine = models[name].model.vision_tower.state_dict()
    for other, model in models.items():
        theirs = model.model.vision_tower.state_dict()
        if mine.keys() == theirs.keys() and all(torch.equal(mine[part], theirs[part]) for part in mine):
            return other
    return name
