"""One field experiment: checks, unfinished batches of questions per model, and the report."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot import methods
from aviot.bundled import is_embedded
from aviot.evaluation.schema import (
    Check,
    Schema,
    is_count,
    is_nonnegative,
    is_number,
    is_text,
    list_of,
    mapping_of,
    matches,
)
from aviot.session import VideoLM
from aviot.utils.files import explain_write_errors, folder_lock
from aviot.utils.journal import read_rows
from aviot.utils.machine import command_line, machine
from aviot_lab.demo_model.log import CURVES, finished_pieces
from aviot_lab.field.evaluator import FieldEvaluator, Record
from aviot_lab.field.report import document_of
from aviot_lab.field.size import FieldSetting, FieldSize, compressing_methods, settings_of
from aviot_lab.field.summary import FieldSummary
from aviot_lab.field.yardstick import FOLDER
from aviot_lab.reproduce.journaling import TRY_AGAIN, BatchRun, RunOptions
from aviot_lab.reproduce.plots import require_matplotlib
from aviot_lab.reproduce.progress import LOADING, BatchCost, RunProgress
from aviot_lab.reproduce.run import SPLIT, scenes_for
from aviot_lab.reproduce.write import ELSEWHERE, check_report, write_document
from aviot_lab.world import World, WorldConfig

FORMAT = 1
UNTRAINED = "its trained parts were never trained in this model"

Load = Callable[[Path], VideoLM]


@dataclass(frozen=True, kw_only=True)
class FieldOptions(RunOptions):
    """Options of a run; every method is compared with the reference."""

    folders: Mapping[str, Path]  # by the names that the report calls the models
    size: FieldSize
    reference: str


@dataclass(frozen=True)
class FieldBatch:
    """Scenes whose questions one model answers together."""

    model: str
    numbers: tuple[int, ...]


def measure_field(options: FieldOptions, load: Load, progress: RunProgress | None = None) -> dict[str, Any]:
    """Measure what has not been measured yet, write the report into the run's folder and return its data."""
    require_matplotlib()
    check_report(options.out)
    names = compressing_methods()
    for name in names:
        methods.get(name)  # raises ValueError if one cannot be loaded
    with folder_lock(options.out, f"wait until it ends, or {ELSEWHERE}"):
        progress = RunProgress() if progress is None else progress
        identity = _identity(options, names)  # before anything is measured: files may change meanwhile
        settings = settings_of(options.size, names)
        records = _Field(options, load, settings, progress).finish(identity)
        report = _about(options, identity, records) | {
            "figures": {
                name: FieldSummary(
                    [record for record in records if record["model"] == name],
                    options.size,
                    options.reference,
                    options.seed,
                ).figures(names)
                for name in options.folders
            }
        }
        progress.phase("writing the report")
        with explain_write_errors(options.out, TRY_AGAIN):
            write_document(options.out, report, document_of(report))
    return report


class _Field:
    """The batches of a run; one model is in memory at a time."""

    def __init__(
        self,
        options: FieldOptions,
        load: Load,
        settings: Sequence[FieldSetting],
        progress: RunProgress,
    ) -> None:
        self.options, self.load, self.settings, self.progress = options, load, settings, progress
        self.world = World(WorldConfig(seed=options.seed))
        self.loaded: tuple[str, FieldEvaluator] | None = None

    def finish(self, identity: Mapping[str, Any]) -> list[Record]:
        """Answer what is not in the journal."""
        size, batches = self.options.size, list(self._batches())
        run = BatchRun(
            out=self.options.out,
            identity=identity,
            batches=batches,
            costs=[BatchCost(batch.model, len(batch.numbers)) for batch in batches],
            answer=self._answer,
            check=lambda records, path: check_records(records, batches, self.settings, path),
        )
        assert size.videos > 0  # a batch has scenes
        return run.finish(self.progress)

    def _batches(self) -> Iterator[FieldBatch]:
        size = self.options.size
        scenes = tuple(range(scenes_for(self.world, size.frames, size.questions)))
        for name in self.options.folders:
            for first in range(0, len(scenes), size.videos):
                yield FieldBatch(name, scenes[first : first + size.videos])

    def _answer(self, batch: FieldBatch) -> Record:
        evaluator = self._evaluator(batch.model)
        began = time.monotonic()
        scenes = [self.world.scene(SPLIT, number, self.options.size.frames) for number in batch.numbers]
        record = evaluator.answer(self.world, scenes)
        return record | {"model": batch.model, "seconds": round(time.monotonic() - began, 3)}

    def _evaluator(self, name: str) -> FieldEvaluator:
        if self.loaded is None or self.loaded[0] != name:
            self.loaded = None  # frees the model before
            self.progress.phase(LOADING)
            folder = self.options.folders[name]
            lm = self.load(folder)
            lm.backbone.model.to(self.options.dtype)
            untrained = "" if was_trained(lm, folder) else UNTRAINED
            self.loaded = name, FieldEvaluator(lm, self.settings, untrained, self.progress.answering)
        return self.loaded[1]


def named_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Return model folders by their names, which may be used in names of files; a repeated name gets a number."""
    named: dict[str, Path] = {}
    for folder in folders:
        own = {FOLDER: "yardstick"}.get(folder, "bundled" if is_embedded(folder) else "")
        name = own or re.sub(r"\W+", "-", folder.resolve().name).strip("-") or "model"
        number = 2
        while name in named:
            name, number = f"{name.removesuffix(f'-{number - 1}')}-{number}", number + 1
        named[name] = folder
    return named


def was_trained(lm: VideoLM, folder: Path) -> bool:
    """Return whether a model's parts for trained methods were trained: by an adapter, or in a run that compressed."""
    if lm.backbone.trained == "adapter":
        return (folder / "adapter").is_dir()
    pieces = [began for began, _ in finished_pieces(read_rows(folder / CURVES))]
    return not pieces or any(began["compressor"] == "aviot" or began.get("weights") for began in pieces)


def check_records(
    records: Sequence[Record], batches: Sequence[FieldBatch], settings: Sequence[FieldSetting], journal: Path
) -> None:
    """Raise ValueError unless the records on disk are the run's first batches, in order."""
    for number, record in enumerate(records):
        if number >= len(batches) or not _is_of(record, batches[number], settings):
            raise ValueError(
                f"{journal}, line {number + 2} is not the run's batch {number + 1} of {len(batches)}; "
                "the file was changed, begin another run with -o"
            )


def _is_of(record: Record, batch: FieldBatch, settings: Sequence[FieldSetting]) -> bool:
    """Return whether a record is of these scenes, has every setting's answers or refusal, and is well-formed."""
    scenes: Any = record.get("scenes")
    if not list_of(is_count)(scenes) or tuple(dict.fromkeys(scenes)) != batch.numbers:
        return False
    if not isinstance(record.get("refused"), dict):
        return False
    keys, count = [one.key for one in settings if one.key not in record["refused"]], len(scenes)

    def by_setting(check: Check) -> Check:
        return mapping_of(list_of(check, least=count, most=count), *keys)

    form: dict[str, Schema] = {
        "model": lambda value: value == batch.model,
        "scenes": list_of(is_count),
        "families": list_of(is_text, least=count, most=count),
        "right": by_setting(lambda value: is_nonnegative(value) and value in (0, 1)),
        "entered": by_setting(is_count),
        "left": by_setting(is_count),
        "milliseconds": mapping_of(
            matches({"method": lambda value: value is None or is_number(value), "first token": is_number}), *keys
        ),
        "refused": mapping_of(is_text, *(one.key for one in settings if one.key in record["refused"])),
        "seconds": is_nonnegative,
    }
    return matches(form, allow_extra=False)(record)


def _identity(options: FieldOptions, names: Sequence[str]) -> dict[str, Any]:
    """Return everything that determines the answers; a difference makes another run."""
    own = {"format": FORMAT, "experiment": "field", "methods": list(names)}
    return own | options.identity(options.size, options.folders)


def _about(options: FieldOptions, identity: Mapping[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    first = [record for record in records if record["model"] == next(iter(options.folders))]
    return {
        **identity,
        "setting": options.setting,
        "reference": options.reference,
        "split": SPLIT,
        "command": command_line(),
        "machine": machine(options.device),
        "questions": {
            "asked": sum(len(record["scenes"]) for record in first),
            "scenes": len({scene for record in first for scene in record["scenes"]}),
        },
        "seconds": sum(record["seconds"] for record in records),
    }
