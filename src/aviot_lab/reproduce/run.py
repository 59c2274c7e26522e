"""One reproduction: checks, unfinished batches of questions, and the report."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from aviot.evaluation.manifest import weight_hashes
from aviot.evaluation.schema import Schema, is_count, is_nonnegative, is_number, is_text, list_of, mapping_of, matches
from aviot.models import AviotForConditionalGeneration
from aviot.session import VideoLM
from aviot.utils.files import explain_write_errors, folder_lock
from aviot.utils.machine import command_line, machine
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.log import CURVES, TrainingSummary, training_summary
from aviot_lab.reproduce.evaluator import Record, RowEvaluator
from aviot_lab.reproduce.journaling import TRY_AGAIN, BatchRun, RunOptions
from aviot_lab.reproduce.plots import require_matplotlib
from aviot_lab.reproduce.progress import LOADING, BatchCost, RunProgress
from aviot_lab.reproduce.rows import Part, Row, Weights, required_rows, rows_of
from aviot_lab.reproduce.size import Size
from aviot_lab.reproduce.summary import Summary, training_command
from aviot_lab.reproduce.write import ELSEWHERE, check_report, write_report
from aviot_lab.world import Split, World, WorldConfig

FORMAT = 2
SPLIT: Split = "test"

Load = Callable[[Path], VideoLM]


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of a run."""

    folders: Mapping[Weights, Path]  # "model", and weights that were fine-tuned with baselines, if any
    size: Size


@dataclass(frozen=True)
class SceneBatch:
    """Scenes whose questions are answered together."""

    part: Part
    numbers: tuple[int, ...]


def reproduce(options: Options, load: Load, progress: RunProgress | None = None) -> dict[str, Any]:
    """Measure what has not been measured yet, write the report into the run's folder and return its data."""
    require_matplotlib()
    check_report(options.out)
    with folder_lock(options.out, f"wait until it ends, or {ELSEWHERE}"):
        return _reproduce(options, load, progress)


def _reproduce(options: Options, load: Load, progress: RunProgress | None) -> dict[str, Any]:
    progress = RunProgress() if progress is None else progress
    progress.phase(LOADING)
    loaded = {name: load(folder) for name, folder in options.folders.items()}
    models = {name: _checked(lm.backbone.model.to(options.dtype), options.folders[name]) for name, lm in loaded.items()}
    tokenizers = {name: lm.backbone.tokenizer for name, lm in loaded.items()}
    trained = {name: training_summary(folder) for name, folder in options.folders.items()}
    for name in models.keys() - {"model"}:
        _check_tuned(options.folders, trained, name, tokenizers[name], tokenizers["model"])
    config = models["model"].config.compressor
    tuned: set[Weights] = {name for name in models if name != "model"}
    rows, writer = required_rows(options.size, config, tuned), BatchWriter(tokenizers["model"])
    evaluator = RowEvaluator(models, rows, options.size, writer, on_row=progress.answering)
    identity = _identity(options)  # before anything is measured: files may change meanwhile
    records = _measure(options, evaluator, identity, progress)
    short, long = ([one for one in records if one["part"] == part] for part in ("short", "long"))
    report = _about(options, identity, trained, short, long) | {
        "figures": Summary(options.size, config, tuned, short, long, options.seed).figures()
    }
    progress.phase("writing the report")
    with explain_write_errors(options.out, TRY_AGAIN):
        write_report(options.out, report)
    return report


def _measure(
    options: Options, evaluator: RowEvaluator, identity: Mapping[str, Any], progress: RunProgress | None = None
) -> list[Record]:
    """Answer every batch that is not in the journal yet; each is on disk before the next."""
    progress = RunProgress() if progress is None else progress
    world = World(WorldConfig(seed=options.seed))
    scene_batches = [*_scene_batches(world, options.size)]
    run = BatchRun(
        out=options.out,
        identity=identity,
        batches=scene_batches,
        costs=[_cost(scene_batch, evaluator.rows, options.size) for scene_batch in scene_batches],
        answer=lambda scene_batch: _answer(scene_batch, options, evaluator, world),
        check=lambda records, path: _check_records(records, scene_batches, evaluator, path),
    )
    return run.finish(progress)


def _answer(scene_batch: SceneBatch, options: Options, evaluator: RowEvaluator, world: World) -> Record:
    """Draw a batch's videos and answer its questions in every row."""
    began = time.monotonic()
    frames = options.size.frames if scene_batch.part == "short" else options.size.long_frames
    batch = question_batch(evaluator.writer, world, SPLIT, scene_batch.numbers, frames)
    record = evaluator.short(batch) if scene_batch.part == "short" else evaluator.long(batch)
    return record | {"part": scene_batch.part, "seconds": round(time.monotonic() - began, 3)}


def _cost(scene_batch: SceneBatch, rows: Sequence[Row], size: Size) -> BatchCost:
    """Estimate a batch's cost by the frames that its rows read."""
    frames = {"short": size.frames, "long": size.long_frames, "sampled": size.sampled}
    per_scene = 1 + sum(frames[row.video] for row in rows_of(scene_batch.part, rows))
    return BatchCost(scene_batch.part, len(scene_batch.numbers) * per_scene)


def _check_records(
    records: Sequence[Record], scene_batches: Sequence[SceneBatch], evaluator: RowEvaluator, journal: Path
) -> None:
    """Raise ValueError unless the records on disk are the run's first batches, in order."""
    for number, record in enumerate(records):
        fits = number < len(scene_batches) and _is_of(record, scene_batches[number], evaluator)
        if not fits or (record["part"] == records[0]["part"] and _measured(record) != _measured(records[0])):
            raise ValueError(
                f"{journal}, line {number + 2} is not the run's batch {number + 1} of {len(scene_batches)}; "
                "the file was changed, begin another run with -o"
            )


def _is_of(record: Record, scene_batch: SceneBatch, evaluator: RowEvaluator) -> bool:
    """Return whether a record is of these scenes, has every row's answers, and is well-formed."""
    scenes: Any = record.get("scenes")
    if not list_of(is_count)(scenes) or tuple(dict.fromkeys(scenes)) != scene_batch.numbers:
        return False
    count = len(scenes)
    rows = {row.key: list_of(_is_mark, least=count, most=count) for row in rows_of(scene_batch.part, evaluator.rows)}
    form: dict[str, Schema] = {
        "part": lambda value: value == scene_batch.part,
        "scenes": list_of(is_count),
        "families": list_of(is_text, least=count, most=count),
        "right": matches(rows, allow_extra=False),
        "seconds": is_nonnegative,
    }
    if scene_batch.part == "short":
        numbers = {"allocation": is_number, "temporal": is_number}
        shares = mapping_of(list_of(is_number, least=count, most=count))
        form["usage"] = mapping_of(shares, *(f"{ratio:g}" for ratio in evaluator.size.ratios))
        form["distances"] = list_of(
            matches({"kind": is_text, "scene": is_count, **numbers}, allow_extra=False), least=0
        )
    return matches(form, allow_extra=False)(record)


def _measured(record: Record) -> dict[str, set[str]]:
    """Return the names of a record's compressor quantities by ratio: every batch of a run has the same."""
    return {ratio: set(values) for ratio, values in record.get("usage", {}).items()}


def _is_mark(value: Any) -> bool:
    """Return whether a value marks an answer as right or wrong."""
    return is_nonnegative(value) and value in (0, 1)


def _scene_batches(world: World, size: Size) -> Iterator[SceneBatch]:
    parts: tuple[tuple[Part, int, int, int], ...] = (
        ("short", size.frames, size.questions, size.videos),
        ("long", size.long_frames, size.long_questions, size.long_videos),
    )
    for part, frames, questions, videos in parts:
        scenes = tuple(range(scenes_for(world, frames, questions)))
        yield from (SceneBatch(part, scenes[first : first + videos]) for first in range(0, len(scenes), videos))


def scenes_for(world: World, frames: int, questions: int, split: Split = SPLIT) -> int:
    """Return the number of scenes that have at least so many questions."""
    asked = (len(world.scene(split, number, frames).plots) for number in count())
    return next(scenes for scenes, so_far in enumerate(accumulate(asked), start=1) if so_far >= questions)


def _identity(options: Options) -> dict[str, Any]:
    """Return everything that determines the answers; a difference makes another run."""
    return {"format": FORMAT} | options.identity(options.size, options.folders)


def _about(
    options: Options,
    identity: Mapping[str, Any],
    trained: Mapping[Weights, TrainingSummary | None],
    short: Sequence[Record],
    long: Sequence[Record],
) -> dict[str, Any]:
    models = {
        name: {
            "sha256": next(digest for file, digest in files.items() if file.endswith(".safetensors")),
            "files": files,
            "trained": (how := trained[name]) and how._asdict(),
        }
        for name, files in identity["models"].items()
    }
    return {
        **identity,
        "setting": options.setting,
        "split": SPLIT,
        "command": command_line(),
        "machine": machine(options.device),
        "models": models,
        "questions": {
            "short": sum(len(record["scenes"]) for record in short),
            "scenes": len({scene for record in short for scene in record["scenes"]}),
            "long": sum(len(record["scenes"]) for record in long),
            "long_scenes": len({scene for record in long for scene in record["scenes"]}),
        },
        "seconds": sum(record["seconds"] for record in (*short, *long)),
    }


def _check_tuned(
    folders: Mapping[Weights, Path],
    trained: Mapping[Weights, TrainingSummary | None],
    name: Weights,
    theirs: PreTrainedTokenizerBase,
    ours: PreTrainedTokenizerBase,
) -> None:
    """Raise ValueError unless weights were fine-tuned with a baseline, for as many steps and with one tokenizer."""
    if weight_hashes(folders[name]) == weight_hashes(folders["model"]):
        raise ValueError(f"{folders[name]} has the weights of {folders['model']}: nothing was fine-tuned with {name}")
    expected, found = trained["model"], trained[name]
    if expected is None or found is None:
        missing = folders["model" if expected is None else name]
        raise ValueError(
            f"{missing} has no {CURVES}, so nobody can say whether it was fine-tuned as long as the other; "
            "give folders that python -m aviot_lab.demo_model.export wrote"
        )
    if found != (name, expected.steps):
        raise ValueError(
            f"{folders[name]} was trained with {found.compressor} up to step {found.steps:,}; its row is of {name} "
            f"up to step {expected.steps:,}, as {folders['model']}: {training_command(name)}"
        )
    if theirs.get_vocab() != ours.get_vocab():
        raise ValueError(
            f"{folders[name]} has other tokens than {folders['model']}; fine-tune it from that model's run: "
            f"{training_command(name)}"
        )


def _checked(model: AviotForConditionalGeneration, folder: Path) -> AviotForConditionalGeneration:
    """Return the model; raise ValueError if its image size is not the world's."""
    size, expected = model.config.vision_config.image_size, WorldConfig().size
    if size != expected:
        raise ValueError(
            f"{folder} has an image size of {size} pixels, the world's is {expected}; "
            "name a model that aviot_lab.demo_model.export wrote"
        )
    return model
