"""The model that lmms-eval asks: its requests by video, each video encoded once, answered as `aviot evaluate` does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from loguru import logger

from aviot.backbones import registry as backbones
from aviot.backbones.checkpoints.folder import resolve_folder
from aviot.backbones.loading import LoadOptions
from aviot.evaluation.batching import batch_by_video
from aviot.evaluation.config import EvaluationConfig
from aviot.evaluation.item import Instructions, Item
from aviot.evaluation.lmms.requests import Decoding, read_decoding, read_request
from aviot.evaluation.manifest import effective_sampling, environment, weight_hashes
from aviot.evaluation.prediction import Predictor, predict_videos
from aviot.evaluation.progress import Display
from aviot.evaluation.results import has_failed
from aviot.methods.registry import DEFAULT
from aviot.session import VideoLM
from aviot.utils.files import write_durably
from aviot.utils.journal import Row
from aviot.utils.machine import process_device
from aviot.utils.printing import json_text

NO_ANSWER = "-"
"""The reply of a question that could not be asked: no task reads a letter in it, and none leaves it out as empty."""


@dataclass
class SampleTokens(TokenCounts):
    """Values that a sample logs beside its reply: the video's visual tokens, and how many of them the decoder read."""

    tokens_before: int = 0
    tokens_after: int = 0

    def to_dict(self) -> dict[str, int | None]:
        """Return the harness's own counts and ours."""
        own: dict[str, int | None] = super().to_dict()
        return own | {"tokens_before": self.tokens_before, "tokens_after": self.tokens_after}


class Aviot(lmms):
    """A checkpoint at one ratio with one method, as `--model_args` say.

    `pretrained` is the folder of a checkpoint of any family, or a name on the hub that is in its cache here (with
    `download=True` it is fetched); `dtype`, `device_map` and `quantization` are those of `VideoLM.from_pretrained`.
    `ratio` (the checkpoint's if not given), `method` (a name in `aviot.methods.names()`; `compressor` is its former
    name), `fps`, `max_frames` and `frames` are those of `aviot evaluate`. `manifest` names a JSON file that gets what
    ran. `--batch_size` questions of a video are asked at a time.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str,
        ratio: float | None = None,
        method: str = DEFAULT,
        fps: float | None = None,
        max_frames: int | None = None,
        frames: int | None = None,
        manifest: str | None = None,
        batch_size: int | str = 1,
        device: str | None = None,
        dtype: str = "auto",
        device_map: str | None = None,
        quantization: Literal["4bit", "8bit"] | None = None,
        download: bool = False,
        compressor: str | None = None,
    ) -> None:
        super().__init__()
        sampling = {"fps": fps, "max_frames": max_frames, "frames": frames}
        checked = EvaluationConfig(
            items=Path(),
            model=resolve_folder(pretrained, download=download),
            out=Path(),
            ratios=() if ratio is None else (float(ratio),),
            methods=(method if compressor is None else compressor,),
            sampling=sampling,
            batch=_batch(batch_size),
            loading=LoadOptions(dtype, device_map, quantization),
        )
        self._device = process_device(device)
        lm = VideoLM.from_pretrained(
            checked.model, device=str(self._device), dtype=dtype, device_map=device_map, quantization=quantization
        )
        self._stored = backbones.stored(checked.model)
        self._setting = checked.settings(lm.backbone.default_budget)[0]
        self._batch = checked.batch
        self._predictor = Predictor(lm, Instructions(), 1, sampling)
        self._manifest = None if manifest is None else Path(manifest)
        self._checked = checked

    @property
    def device(self) -> torch.device:
        """The device of the model, where the harness gathers counts too."""
        return self._device

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """Return one reply per request, in their order, with its token counts; what could not be asked is listed."""
        replies = [GenerationResult(NO_ANSWER) for _ in requests]
        failed: list[str] = []
        asked: dict[Decoding, dict[int, Item]] = {}
        for number, request in enumerate(requests):
            decoding = read_decoding(request.args[2])
            try:
                asked.setdefault(decoding, {})[number] = self._item(request)
            except (SystemExit, AssertionError, OSError) as error:  # how tasks say that a video is not there
                failed.append(f"{request.task_name} {request.doc_id}: {error}")
        with Display("asked", len(requests), len(failed), silent=self.rank > 0) as display:
            for decoding, items in asked.items():
                numbers = list(items)
                for row in self._rows(list(items.values()), decoding):
                    if has_failed(row):
                        failed.append(f"{row['id']} ({row['video']}): {row['reason']}")
                    else:
                        replies[numbers[row["item"]]] = self._result(row, decoding)
                    display.advance(f"{len(failed)} failed")
        _tell(failed, len(requests))
        self._write_manifest(requests, failed)
        return replies

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Not a thing that a generating model is scored by in any of the tasks."""
        raise NotImplementedError("aviot generates answers; choose the task's generate_until form, not mcppl")

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """Not asked for by any task about one video."""
        raise NotImplementedError("aviot answers single turns; choose a task of one round")

    def _result(self, row: Row, decoding: Decoding) -> GenerationResult:
        """Return a reply with its counts; the harness's input tokens are the visual ones that were read."""
        before, after = row["tokens_before"], row["tokens_after"]
        said = len(self._predictor.lm.backbone.tokenizer(row["prediction"], add_special_tokens=False)["input_ids"])
        counts = SampleTokens(input_tokens=after, output_tokens=said, tokens_before=before, tokens_after=after)
        return GenerationResult(decoding.cut(row["prediction"]), counts)

    def _item(self, request: Instance) -> Item:
        _, to_messages, _, number, task, split = request.args
        record = self.task_dict[task][split][number]
        return read_request(to_messages(record), record, f"{task} {number}")

    def _rows(self, items: Sequence[Item], decoding: Decoding) -> Iterator[Row]:
        """Rows of `aviot evaluate`: the same videos, batches and answers."""
        who = replace(self._predictor, max_new_tokens=decoding.max_new_tokens)
        return predict_videos(who, items, batch_by_video(items, Path(), (self._setting,), self._batch), frozenset())

    def _write_manifest(self, requests: Sequence[Instance], failed: Sequence[str]) -> None:
        """Write what ran, from the first process; the harness's own results hold the replies."""
        if self._manifest is None or self.rank > 0:
            return
        told: Mapping[str, Any] = {
            "weights": weight_hashes(self._checked.model),
            "setting": asdict(self._setting),
            "sampling": effective_sampling(self._stored, self._predictor.sampling),
            "batch": self._batch,
            "loading": self._checked.loading.recorded,
            "processes": self.world_size,
            "tasks": sorted({request.task_name for request in requests}),
            "failed_here": failed,
            **environment(self._device),
        }
        write_durably(self._manifest, json_text(told, indent=2).encode() + b"\n")


def _tell(failed: Sequence[str], count: int) -> None:
    if failed:
        lines = "".join(f"\n  {line}" for line in failed)
        logger.error(f"{len(failed)} of {count} questions could not be asked, answered {NO_ANSWER!r}:{lines}")


def _batch(size: int | str) -> int:
    if not str(size).isdecimal() or int(size) < 1:
        raise ValueError(f"--batch_size must be a whole number of at least 1, got {size!r}")
    return int(size)
