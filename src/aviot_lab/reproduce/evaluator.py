"""Batches of questions answered in every row: a video is drawn once, and encoded once per encoder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from aviot.backbones.llava_video.modeling import variant
from aviot.models import AviotForConditionalGeneration
from aviot.video import Sampling
from aviot_lab.demo_model.accuracy import QuestionBatch
from aviot_lab.demo_model.batches import BatchWriter, ConversationBatch
from aviot_lab.demo_model.learning import Answers, answer, encode
from aviot_lab.reproduce.rows import Row, Weights, aviot, conditioning_rows, rows_of
from aviot_lab.reproduce.separation import distances, rotated
from aviot_lab.reproduce.size import Size

Record = dict[str, Any]
OnRow = Callable[[int, int], None]  # the row that is answered next, counted from 1, and their number


class RowEvaluator:
    """Models of the same architecture, and the rows to evaluate; `on_row` is called before each row."""

    def __init__(
        self,
        models: Mapping[Weights, AviotForConditionalGeneration],
        rows: Sequence[Row],
        size: Size,
        writer: BatchWriter,
        on_row: OnRow = lambda row, rows: None,
    ) -> None:
        self.size, self.writer, self.rows, self.on_row = size, writer, rows, on_row
        self.models = {row: variant(models[row.weights], **dict(row.switches)) for row in rows}
        self.encoders = {name: _same_encoder(models, name) for name in models}
        self.base = dict(models)

    @torch.no_grad()
    def short(self, batch: QuestionBatch) -> Record:
        """Evaluate the rows of short videos: right answers, usage of gates and budgets, distances between questions."""
        rows = rows_of("short", self.rows)
        scenes = [scene.index for scene, _ in batch.asked]
        features = {name: self._encode(name, batch) for name in {self.encoders[row.weights] for row in rows}}
        conditionings = conditioning_rows(self.size)
        usage_rows = {aviot(ratio): f"{ratio:g}" for ratio in self.size.ratios}
        right: dict[str, Tensor] = {}
        usage: dict[str, dict[str, Tensor]] = {}
        by_conditioning: dict[str, Answers] = {}
        for row in self._announced(rows):
            found = self._answer(row, features[self.encoders[row.weights]], batch.conversations, rotated(scenes))
            right[row.key] = found.right
            if row in usage_rows and found.compression is not None and found.compression.usage is not None:
                shares, entropy = found.compression.usage
                usage[usage_rows[row]] = {**shares, "budget_entropy": entropy}
            if row in (conditionings["matched"], conditionings["none"]):
                by_conditioning[row.conditioning] = found
        matched, without = by_conditioning["matched"].compression, by_conditioning["none"].compression
        apart = distances(scenes, matched, without) if matched is not None and without is not None else ()
        return _about(batch) | {
            "right": _read(right),
            "usage": {ratio: _read(values) for ratio, values in usage.items()},
            "distances": [asdict(distance) for distance in apart],
        }

    @torch.no_grad()
    def long(self, batch: QuestionBatch) -> Record:
        """Evaluate the rows of long videos, from all frames or sampled ones; each frame is encoded once."""
        at = Sampling(frames=self.size.sampled).indices(self.size.long_frames, batch.scenes[0].fps)
        fewer = self.writer.conversations(batch.asked, frames=at, sampled=True)
        features = self._encode(self.encoders["model"], batch)
        right: dict[str, Tensor] = {}
        for row in self._announced(rows_of("long", self.rows)):
            whole = row.video == "long"
            u, asked = (features, batch.conversations) if whole else (features[:, list(at)], fewer)
            right[row.key] = self._answer(row, u, asked).right
        return _about(batch) | {"right": _read(right)}

    def _announced(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield each row after calling `on_row`."""
        for number, row in enumerate(rows, start=1):
            self.on_row(number, len(rows))
            yield row

    def _encode(self, name: Weights, batch: QuestionBatch) -> Tensor:
        return encode(self.base[name], batch.conversations.plans, batch.conversations.videos)

    def _answer(self, row: Row, u: Tensor, batch: ConversationBatch, rotation: Sequence[int] | None = None) -> Answers:
        found = answer(
            self.models[row],
            u,
            batch,
            ratio=row.ratio,
            compressor=row.compressor,
            question_of=rotation if row.conditioning == "rotated" else None,
            conditioned=row.conditioning != "none",
        )
        if found.compression is not None:
            found.compression.check()
        if not torch.isfinite(found.language):
            raise ValueError(f"row {row.key}: the decoder's loss is not finite (NaN or infinity); check the weights")
        return found


def _about(batch: QuestionBatch) -> Record:
    return {
        "scenes": [scene.index for scene, _ in batch.asked],
        "families": [question.family for question in batch.questions],
    }


def _read(values: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Return the values of every row, copied from the device at once."""
    table = torch.stack([value.double() for value in values.values()]).cpu().tolist()
    return {name: [round(value, 6) for value in row] for name, row in zip(values, table, strict=True)}


def _same_encoder(models: Mapping[Weights, AviotForConditionalGeneration], name: Weights) -> Weights:
    """Return the first model whose encoder has the same weights as this one's: fine-tuning freezes the encoder."""
    mine = models[name].model.vision_tower.state_dict()
    for other, model in models.items():
        theirs = model.model.vision_tower.state_dict()
        if mine.keys() == theirs.keys() and all(torch.equal(mine[part], theirs[part]) for part in mine):
            return other
    return name
