"""One run with automatic budgets: unfinished batches of both splits, the calibration, and the report."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.evaluation.schema import Check, Schema, is_count, is_nonnegative, is_text, list_of, mapping_of, matches
from aviot.session import VideoLM
from aviot.utils.files import explain_write_errors, folder_lock
from aviot.utils.machine import command_line, machine
from aviot_lab.auto.evaluator import RatioEvaluator
from aviot_lab.auto.report import document_of
from aviot_lab.auto.size import AutoSize, key_of
from aviot_lab.auto.summary import AutoSummary, best_calibration
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.reproduce.journaling import TRY_AGAIN, BatchRun, Record, RunOptions
from aviot_lab.reproduce.progress import LOADING, BatchCost, RunProgress
from aviot_lab.reproduce.run import scenes_for
from aviot_lab.reproduce.write import ELSEWHERE, check_report, write_document
from aviot_lab.world import Split, World, WorldConfig

FORMAT = 1

Load = Callable[[Path], VideoLM]


@dataclass(frozen=True, kw_only=True)
class AutoOptions(RunOptions):
    """Options of a run."""

    folder: Path
    size: AutoSize


@dataclass(frozen=True)
class AutoBatch:
    """Scenes of a split whose questions are answered together."""

    split: Split
    numbers: tuple[int, ...]


def measure_auto(options: AutoOptions, load: Load, progress: RunProgress | None = None) -> dict[str, Any]:
    """Measure what has not been measured yet; write calibration and report into the run's folder, return the report."""
    check_report(options.out)
    with folder_lock(options.out, f"wait until it ends, or {ELSEWHERE}"):
        progress = RunProgress() if progress is None else progress
        progress.phase(LOADING)
        lm = load(options.folder)
        lm.backbone.model.to(options.dtype)
        identity = _identity(options)  # before anything is measured: files may change meanwhile
        records = _measure(options, lm, identity, progress)
        validation, test = ([one for one in records if one["split"] == split] for split in ("validation", "test"))
        figures = AutoSummary(options.size, validation, test, options.seed).figures()
        report = _about(options, identity, validation, test) | {"figures": figures}
        progress.phase("writing the report")
        with explain_write_errors(options.out, TRY_AGAIN):
            if (calibration := best_calibration(figures)) is not None:
                calibration.save(options.out)
            write_document(options.out, report, document_of(report))
    return report


def _measure(options: AutoOptions, lm: VideoLM, identity: Mapping[str, Any], progress: RunProgress) -> list[Record]:
    """Answer every batch that is not in the journal yet."""
    world, writer = World(WorldConfig(seed=options.seed)), BatchWriter(lm.backbone.tokenizer)
    evaluator = RatioEvaluator(lm, options.size, progress.answering)
    batches = list(_batches(world, options.size))

    def answer(batch: AutoBatch) -> Record:
        began = time.monotonic()
        questions = question_batch(writer, world, batch.split, batch.numbers, options.size.frames)
        record = evaluator.answer(questions)
        return record | {"split": batch.split, "seconds": round(time.monotonic() - began, 3)}

    run = BatchRun(
        out=options.out,
        identity=identity,
        batches=batches,
        costs=[BatchCost("short", len(batch.numbers)) for batch in batches],
        answer=answer,
        check=lambda records, path: check_records(records, batches, options.size, path),
    )
    return run.finish(progress)


def _batches(world: World, size: AutoSize) -> Iterator[AutoBatch]:
    splits: tuple[tuple[Split, int], ...] = (("validation", size.calibration), ("test", size.questions))
    for split, questions in splits:
        scenes = tuple(range(scenes_for(world, size.frames, questions, split)))
        for first in range(0, len(scenes), size.videos):
            yield AutoBatch(split, scenes[first : first + size.videos])


def check_records(records: Sequence[Record], batches: Sequence[AutoBatch], size: AutoSize, journal: Path) -> None:
    """Raise ValueError unless the records on disk are the run's first batches, in order."""
    for number, record in enumerate(records):
        if number >= len(batches) or not _is_of(record, batches[number], size):
            raise ValueError(
                f"{journal}, line {number + 2} is not the run's batch {number + 1} of {len(batches)}; "
                "the file was changed, begin another run with -o"
            )


def _is_of(record: Record, batch: AutoBatch, size: AutoSize) -> bool:
    """Return whether a record is of these scenes, has every ratio's answers, and is well-formed."""
    scenes: Any = record.get("scenes")
    if not list_of(is_count)(scenes) or tuple(dict.fromkeys(scenes)) != batch.numbers:
        return False
    keys, count = [key_of(ratio) for ratio in size.ratios], len(scenes)

    def by_ratio(check: Check) -> Schema:
        return {key: list_of(check, least=count, most=count) for key in keys}

    form: dict[str, Schema] = {
        "split": lambda value: value == batch.split,
        "scenes": list_of(is_count),
        "families": list_of(is_text, least=count, most=count),
        "right": by_ratio(lambda value: value in (0, 1)),
        "said": by_ratio(is_text),
        "probability": by_ratio(lambda value: is_nonnegative(value) and value <= 1),
        "tokens": mapping_of(is_count, *keys),
        "seconds": is_nonnegative,
    }
    return matches(form, allow_extra=False)(record)


def _identity(options: AutoOptions) -> dict[str, Any]:
    """Return everything that determines the answers; a difference makes another run."""
    own = {"format": FORMAT, "experiment": "auto"}
    return own | options.identity(options.size, {"model": options.folder})


def _about(
    options: AutoOptions, identity: Mapping[str, Any], validation: Sequence[Record], test: Sequence[Record]
) -> dict[str, Any]:
    files = identity["models"]["model"]
    return {
        **identity,
        "setting": options.setting,
        "sha256": next(digest for file, digest in files.items() if file.endswith(".safetensors")),
        "command": command_line(),
        "machine": machine(options.device),
        "questions": {
            "asked": sum(len(record["scenes"]) for record in test),
            "scenes": len({scene for record in test for scene in record["scenes"]}),
            "calibration": sum(len(record["scenes"]) for record in validation),
        },
        "seconds": sum(record["seconds"] for record in (*validation, *test)),
    }
