"""One reproduction, in order: what is there already, sheet after sheet, the report."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from aviot.evaluation.manifest import differences, weight_hashes
from aviot.evaluation.progress import RunningScore
from aviot.evaluation.schema import Schema, is_count, is_nonnegative, is_number, is_text, list_of, mapping_of, matches
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.utils.files import naming_failures, only_writer
from aviot.utils.journal import Journal, read_rows
from aviot.utils.machine import command_line, commit, machine, versions
from aviot_lab.demo_model.accuracy import write_sheet
from aviot_lab.demo_model.lessons import LessonWriter
from aviot_lab.demo_model.log import CURVES, Trained, how_trained
from aviot_lab.reproduce.examiner import Examiner, Record
from aviot_lab.reproduce.plots import require_matplotlib
from aviot_lab.reproduce.progress import LOADING, RunProgress, SheetCost
from aviot_lab.reproduce.rows import Part, Row, Weights, needed, rows_of
from aviot_lab.reproduce.size import Size
from aviot_lab.reproduce.summary import Summary, training_command
from aviot_lab.reproduce.write import ELSEWHERE, check_report, write_report
from aviot_lab.world import Split, World, WorldConfig

FORMAT = 2
SPLIT: Split = "test"
JOURNAL = "journal.jsonl"
TRY_AGAIN = "finished sheets are kept: free some space or make it writable, and run the same command again"

Load = Callable[[Path], tuple[AviotForConditionalGeneration, AviotProcessor]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run is asked for."""

    folders: Mapping[Weights, Path]  # "model", and baselines' fine-tuned weights as far as there are any
    setting: str
    size: Size
    seed: int
    out: Path
    device: torch.device


@dataclass(frozen=True)
class Task:
    """Scenes that are asked about together."""

    part: Part
    numbers: tuple[int, ...]


def reproduce(options: Options, load: Load, progress: RunProgress | None = None) -> dict[str, Any]:
    """Measure what has not been measured yet, write the report into the run's folder and return its data."""
    require_matplotlib()
    check_report(options.out)
    with only_writer(options.out, f"wait until it ends, or {ELSEWHERE}"):
        return _reproduce(options, load, progress)


def _reproduce(options: Options, load: Load, progress: RunProgress | None) -> dict[str, Any]:
    progress = RunProgress() if progress is None else progress
    progress.phase(LOADING)
    dtype = torch.float32 if options.device.type == "cpu" else torch.bfloat16
    loaded = {name: load(folder) for name, folder in options.folders.items()}
    models = {name: _checked(model.to(dtype), options.folders[name]) for name, (model, _) in loaded.items()}
    trained = {name: how_trained(folder) for name, folder in options.folders.items()}
    for name in models.keys() - {"model"}:
        _check_tuned(options.folders, trained, name, loaded[name][1].tokenizer, loaded["model"][1].tokenizer)
    config = models["model"].config.compressor
    tuned: set[Weights] = {name for name in models if name != "model"}
    rows, writer = needed(options.size, config, tuned), LessonWriter(loaded["model"][1].tokenizer)
    examiner = Examiner(models, rows, options.size, writer, tell=progress.answering)
    identity = _identity(options, dtype)  # before anything is measured: files may change meanwhile
    records = _measure(options, examiner, identity, progress)
    short, long = ([one for one in records if one["part"] == part] for part in ("short", "long"))
    report = _about(options, identity, trained, short, long) | {
        "figures": Summary(options.size, config, tuned, short, long, options.seed).figures()
    }
    progress.phase("writing the report")
    with naming_failures(options.out, TRY_AGAIN):
        write_report(options.out, report)
    return report


def _measure(
    options: Options, examiner: Examiner, identity: Mapping[str, Any], progress: RunProgress | None = None
) -> list[Record]:
    """Answer sheet after sheet, each on disk before the next; those that are there already are not asked again."""
    progress = RunProgress() if progress is None else progress
    world = World(WorldConfig(seed=options.seed))
    tasks = [*_tasks(world, options.size)]
    path = options.out / JOURNAL
    with naming_failures(path, TRY_AGAIN), Journal(path, first=identity) as journal:
        rows = read_rows(path)
        head, *records = rows or [dict(identity)]
        if "format" not in head:
            raise ValueError(f"{path} is no journal of aviot reproduce; name another folder with -o")
        if changed := differences(head, identity):
            raise ValueError(
                f"the run in {options.out} would not go on as it began: {'; '.join(changed)}. "
                "Put it back, or name another folder with -o"
            )
        _check_sheets(records, tasks, examiner, path)
        progress.begin(
            [_cost(task, examiner.rows, options.size) for task in tasks], [record["seconds"] for record in records]
        )
        score = RunningScore()
        for record in records:
            _count(score, record)
        if not rows:
            journal.add(identity)
        for task in tasks[len(records) :]:
            progress.drawing()
            record = _answer(task, options, examiner, world)
            journal.add(record)
            records.append(record)
            _count(score, record)
            progress.finish_sheet(record["seconds"], score)
    return records


def _answer(task: Task, options: Options, examiner: Examiner, world: World) -> Record:
    """Draw a sheet's videos and answer its questions in every row."""
    began = time.monotonic()
    frames = options.size.frames if task.part == "short" else options.size.long_frames
    sheet = write_sheet(examiner.writer, world, SPLIT, task.numbers, frames)
    record = examiner.short(sheet) if task.part == "short" else examiner.long(sheet)
    return record | {"part": task.part, "seconds": round(time.monotonic() - began, 3)}


def _cost(task: Task, rows: Sequence[Row], size: Size) -> SheetCost:
    """Estimate a sheet's cost by the frames that its rows read."""
    frames = {"short": size.frames, "long": size.long_frames, "sampled": size.sampled}
    return SheetCost(task.part, len(task.numbers) * (1 + sum(frames[row.sight] for row in rows_of(task.part, rows))))


def _count(score: RunningScore, record: Record) -> None:
    for key, right in record["right"].items():
        for good in right:
            score.add({"setting": key, "correct": bool(good)})


def _check_sheets(records: Sequence[Record], tasks: Sequence[Task], examiner: Examiner, journal: Path) -> None:
    """Sheets on disk are the run's first ones, in their order."""
    for number, record in enumerate(records):
        fits = number < len(tasks) and _is_of(record, tasks[number], examiner)
        if not fits or (record["part"] == records[0]["part"] and _measured(record) != _measured(records[0])):
            raise ValueError(
                f"{journal}, line {number + 2} is not the run's sheet {number + 1} of {len(tasks)}; "
                "the file was changed, begin another run with -o"
            )


def _is_of(record: Record, task: Task, examiner: Examiner) -> bool:
    """Whether a sheet is a task's, with an answer of every row to each of its questions, and of the form it has."""
    scenes: Any = record.get("scenes")
    if not list_of(is_count)(scenes) or tuple(dict.fromkeys(scenes)) != task.numbers:
        return False
    count = len(scenes)
    rows = {row.key: list_of(_is_mark, least=count, most=count) for row in rows_of(task.part, examiner.rows)}
    form: dict[str, Schema] = {
        "part": lambda value: value == task.part,
        "scenes": list_of(is_count),
        "families": list_of(is_text, least=count, most=count),
        "right": matches(rows, allow_extra=False),
        "seconds": is_nonnegative,
    }
    if task.part == "short":
        numbers = {"allocation": is_number, "temporal": is_number}
        shares = mapping_of(list_of(is_number, least=count, most=count))
        form["usage"] = mapping_of(shares, *(f"{ratio:g}" for ratio in examiner.size.ratios))
        form["distances"] = list_of(
            matches({"kind": is_text, "scene": is_count, **numbers}, allow_extra=False), least=0
        )
    return matches(form, allow_extra=False)(record)


def _measured(record: Record) -> dict[str, set[str]]:
    """Which quantities of the compressor a sheet holds, by ratio: every sheet of a run has the same."""
    return {ratio: set(values) for ratio, values in record.get("usage", {}).items()}


def _is_mark(value: Any) -> bool:
    """Whether it says that an answer was right, or that it was not."""
    return is_nonnegative(value) and value in (0, 1)


def _tasks(world: World, size: Size) -> Iterator[Task]:
    parts: tuple[tuple[Part, int, int, int], ...] = (
        ("short", size.frames, size.questions, size.videos),
        ("long", size.long_frames, size.long_questions, size.long_videos),
    )
    for part, frames, questions, videos in parts:
        scenes = tuple(range(_scenes_for(world, frames, questions)))
        yield from (Task(part, scenes[first : first + videos]) for first in range(0, len(scenes), videos))


def _scenes_for(world: World, frames: int, questions: int) -> int:
    """How many scenes it takes for so many questions."""
    asked = (len(world.scene(SPLIT, number, frames).plots) for number in count())
    return next(scenes for scenes, so_far in enumerate(accumulate(asked), start=1) if so_far >= questions)


def _identity(options: Options, dtype: torch.dtype) -> dict[str, Any]:
    """Everything that decides an answer: what differs in it is another run."""
    size = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options.size).items()}
    return {
        "format": FORMAT,
        "size": size,
        "seed": options.seed,
        "models": {name: weight_hashes(folder) for name, folder in options.folders.items()},
        "commit": commit(),
        "versions": versions(),
        "device": machine(options.device)["device"],
        "dtype": str(dtype).removeprefix("torch."),
    }


def _about(
    options: Options,
    identity: Mapping[str, Any],
    trained: Mapping[Weights, Trained | None],
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
    trained: Mapping[Weights, Trained | None],
    name: Weights,
    theirs: PreTrainedTokenizerBase,
    ours: PreTrainedTokenizerBase,
) -> None:
    """Weights that were fine-tuned with a baseline are others, learnt with it as long, and read the same tokens."""
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
            f"{folders[name]} has learnt with {found.compressor} up to step {found.steps:,}; its row is of {name} "
            f"up to step {expected.steps:,}, as {folders['model']}: {training_command(name)}"
        )
    if theirs.get_vocab() != ours.get_vocab():
        raise ValueError(
            f"{folders[name]} has other tokens than {folders['model']}; fine-tune it from that model's run: "
            f"{training_command(name)}"
        )


def _checked(model: AviotForConditionalGeneration, folder: Path) -> AviotForConditionalGeneration:
    """A model that can look at the world's pictures."""
    size, expected = model.config.vision_config.image_size, WorldConfig().size
    if size != expected:
        raise ValueError(
            f"{folder} reads pictures of {size} pixels, those of the world have {expected}; "
            "name a model that aviot_lab.demo_model.export wrote"
        )
    return model
