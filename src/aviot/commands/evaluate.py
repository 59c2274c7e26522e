"""`aviot evaluate`: people's own items, scored, with everything that it takes to repeat it."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.options import METHODS, Device, Fps, Frames, Json, MaxFrames, Model, ReadTimeout, SourceFps
from aviot.methods.registry import DEFAULT
from aviot.terminal import chosen_model, load_model, mistakes, refuse, say
from aviot.utils.launcher import World
from aviot.utils.printing import SafeConsole

if TYPE_CHECKING:
    from aviot.evaluation.config import EvaluationConfig
    from aviot.evaluation.endpoint import Endpoint
    from aviot.evaluation.verify import Verification

Items = Annotated[
    Path | None,
    typer.Argument(
        help="JSON, JSONL or a dataset folder: video, question, options, answer, id. With --suite: the data's folder."
    ),
]
Ratios = Annotated[
    list[float],
    typer.Option("--ratio", "-r", help="Compression ratio, above 1; repeat. The checkpoint's if not given."),
]
Compressors = Annotated[
    list[str],
    typer.Option("--method", "--compressor", help=f"Compression method: {METHODS}; repeat. Default: {DEFAULT}."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", "--out", help="Folder of the run. Default: ITEMS' name and -evaluation."),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", help="Ask the first N items only (of each benchmark with --suite).", metavar="N"),
]
By = Annotated[
    list[str], typer.Option("--by", help="Report scores by a column of the items too; repeat.", metavar="COLUMN")
]
Videos = Annotated[Path | None, typer.Option(help="Folder that videos count from; that of ITEMS if not given.")]
MaxNewTokens = Annotated[
    int | None, typer.Option(help="Longest answer, in tokens; 64, or the benchmark's, if not given.")
]
Suite = Annotated[str | None, typer.Option(help="paper: all ten benchmarks, beside the paper's figures.")]
JudgeUrl = Annotated[str | None, typer.Option(help="OpenAI-compatible address that judges open answers, up to /v1.")]
JudgeKey = Annotated[str | None, typer.Option(help="Name of the environment variable that holds the judge's key.")]


def evaluate(
    items: Items = None,
    model: Model = None,
    ratio: Ratios = [],  # noqa: B006
    compressor: Compressors = [],  # noqa: B006
    output: Output = None,
    limit: Limit = None,
    by: By = [],  # noqa: B006
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run, or add ratios, compressors or items to it.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="With --resume: ask again what could not be asked.")] = False,
    suite: Suite = None,
    verify: Annotated[Path | None, typer.Option(help="Ask a sample of a finished run again.", metavar="RUN")] = None,
    sample: Annotated[int, typer.Option(help="Questions that --verify asks again.")] = 20,
    videos: Videos = None,
    split: Annotated[str | None, typer.Option(help="Which split of a dataset folder.")] = None,
    batch: Annotated[int, typer.Option(help="Questions of a video at a time.")] = 1,
    max_new_tokens: MaxNewTokens = None,
    choice_instruction: Annotated[
        str | None, typer.Option(help="Instruction appended after the options; pass '' for none.")
    ] = None,
    open_instruction: Annotated[
        str | None, typer.Option(help="Instruction appended after a question without options.")
    ] = None,
    judge: JudgeUrl = None,
    judge_model: Annotated[str, typer.Option(help="The judge's model.")] = "gpt-4o",
    judge_key: JudgeKey = None,
    judge_timeout: Annotated[float, typer.Option(help="Seconds that one reply may take.")] = 60.0,
    judge_attempts: Annotated[int, typer.Option(help="How often a verdict is asked for.")] = 6,
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    read_timeout: ReadTimeout = 300.0,
    seed: Annotated[int, typer.Option(help="Seed of --verify's sample.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Ask and score your own items: several ratios and compressors over one encoding of each video.

    The run's folder gets results.jsonl, summary.json and manifest.json; results.csv, summary.csv and summary.md are for
    spreadsheets and documents. Killed at any moment it goes on with --resume, which also adds ratios and compressors to
    a finished run; torchrun and srun share it among processes. --suite paper takes a folder that holds one for each
    benchmark, and ends in suite.md, suite.json and plots. Exit code 1: nothing could be answered, or --verify found a
    difference.

    Example: aviot evaluate items.jsonl -m checkpoints/aviot-7b -r 4 -r 10 --compressor aviot --compressor uniform
    """
    with mistakes():
        from aviot.utils.machine import check_device_name

        first = World.here().rank == 0
        if verify is not None:
            _refuse_beside(
                "--verify asks a run's own questions in its own way",
                ratio=ratio,
                compressor=compressor,
                output=output,
                limit=limit,
                by=by,
                resume=resume or retry,
                suite=suite,
                split=split,
                batch=batch - 1,
                max_new_tokens=max_new_tokens,
                instruction=choice_instruction is not None or open_instruction is not None,
                judge=judge,
                sampling=any(value is not None for value in (fps, max_frames, frames, source_fps)),
            )
            _verify(verify, items, model, videos, device=device, sample=sample, seed=seed, as_json=as_json)
            return
        if items is None:
            raise ValueError("give ITEMS, or --verify RUN")
        if suite is None and not items.exists():
            raise ValueError(f"{items}: no such file; give JSON, JSONL or a dataset folder")
        check_device_name(device)
        if retry and not resume:
            raise ValueError("--retry asks again what a run could not ask; say --resume too")
        if suite is not None:
            if suite != "paper":
                raise ValueError(f"--suite must be paper, got {suite!r}")
            _refuse_beside(
                "--suite has the benchmarks' own videos, splits and words",
                videos=videos,
                split=split,
                by=by,
                instruction=choice_instruction is not None or open_instruction is not None,
            )
        from aviot.bundled import embedded_model
        from aviot.evaluation.config import EvaluationConfig
        from aviot.evaluation.item import Instructions
        from aviot.request import MAX_NEW_TOKENS
        from aviot.video.checks import ReadLimits

        given = {"choice": choice_instruction, "open": open_instruction}
        config = EvaluationConfig(
            items=items,
            model=model or embedded_model(),
            out=output or Path(f"{items.stem}-evaluation"),
            videos=videos,
            split=split,
            ratios=tuple(ratio),
            compressors=tuple(compressor) or (DEFAULT,),
            sampling={"fps": fps, "max_frames": max_frames, "frames": frames, "source_fps": source_fps},
            instructions=Instructions(**{name: text for name, text in given.items() if text is not None}),
            max_new_tokens=MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens,
            batch=batch,
            seed=seed,
            limit=limit,
            by=tuple(dict.fromkeys(by)),
            limits=ReadLimits(seconds=read_timeout),
            judge=_endpoint(judge, judge_model, judge_key, judge_timeout, judge_attempts),
        )
        if suite is None:
            _check_items(config)
        chosen_model(model)  # says that the bundled model answers, now that nothing else is to be said
        if suite is not None:
            _suite(config, device, max_new_tokens, resume=resume, retry=retry, as_json=as_json, first=first)
        else:
            _evaluate(config, device, resume=resume, retry=retry, as_json=as_json, first=first)


def _check_items(config: "EvaluationConfig") -> None:
    """Refuse items that cannot be used and columns that none has, before torch is imported for them."""
    from aviot.evaluation.measures import check_columns
    from aviot.evaluation.reading import SplitError, read_items

    with _hints({SplitError: "--split"}):
        items = read_items(config.items, videos=config.videos, split=config.split)
    check_columns(items.items[: config.limit], config.by)


def _endpoint(url: str | None, model: str, key: str | None, timeout: float, attempts: int) -> "Endpoint | None":
    from aviot.evaluation.endpoint import Endpoint

    if url is None:
        return None
    if not model.strip():
        raise ValueError("--judge-model must name the judge's model, got an empty text")
    return Endpoint(url=url, model=model, key_variable=key, timeout=timeout, attempts=attempts)


def _evaluate(
    config: "EvaluationConfig", device: str, *, resume: bool, retry: bool, as_json: bool, first: bool
) -> None:
    from aviot.evaluation.report import as_dict, print_summary
    from aviot.evaluation.run import RESULTS, NoRunError, RunExistsError
    from aviot.evaluation.run import evaluate as run_evaluation
    from aviot.utils.machine import process_device

    place = process_device(device)
    report = say if first and sys.stderr.isatty() else _silent
    load = partial(load_model, config.model, str(place), report)
    with _hints({RunExistsError: "--resume", NoRunError: "without --resume"}):
        summary = run_evaluation(config, load, place, resume=resume, retry=retry, report=report)
    if summary is None:
        _say_unfinished(config.out / RESULTS, first=first)
        return
    if as_json:
        print(json.dumps({"run": str(config.out)} | as_dict(summary), indent=2))
    else:
        print_summary(summary, SafeConsole())
        say(f"{config.out}: results.jsonl, summary.json, manifest.json; results.csv, summary.csv, summary.md")
    if sum(len(problem.settings) for problem in summary.failed) == summary.rows:
        refuse("no item could be asked; see the reasons above", code=1)


@contextmanager
def _hints(flags: Mapping[type[ValueError], str]) -> Iterator[None]:
    """Add to an error's message the flag that resolves it."""
    try:
        yield
    except tuple(flags) as error:
        raise ValueError(f"{error} ({flags[type(error)]})") from error


def _refuse_beside(what: str, **unfit: object) -> None:
    """An option that would not be listened to is a mistake."""
    given = [name.replace("_", "-") for name, value in unfit.items() if value]
    if given:
        raise ValueError(f"{what}; leave out the options for {', '.join(given)}")


def _say_unfinished(out: Path, *, first: bool) -> None:
    """Why there are no figures yet."""
    if first and not out.is_file():
        say(f"other processes still have rows to add, the last of them writes {out}; if one was ended, --resume")


def _suite(
    config: "EvaluationConfig",
    device: str,
    max_new_tokens: int | None,
    *,
    resume: bool,
    retry: bool,
    as_json: bool,
    first: bool,
) -> None:
    from aviot.evaluation.run import NoRunError, RunExistsError
    from aviot.evaluation.suite.report import JSON, as_dict, as_markdown
    from aviot.evaluation.suite.suite import paper_ratios, paper_sampling, run_suite
    from aviot.utils.machine import process_device

    place = process_device(device)
    report = say if first and sys.stderr.isatty() else _silent
    sampling = paper_sampling(config.sampling)
    base = replace(config, sampling=sampling, ratios=paper_ratios(config.ratios, sampling))
    with _hints({RunExistsError: "--resume", NoRunError: "without --resume"}):
        found = run_suite(
            base,
            partial(load_model, base.model, str(place), report),
            place,
            max_new_tokens=max_new_tokens,
            resume=resume,
            retry=retry,
            report=report,
        )
    if found is None:
        _say_unfinished(base.out / JSON, first=first)
        return
    print(json.dumps(as_dict(found), indent=2) if as_json else as_markdown(found))
    say(f"{base.out}: suite.md, suite.json, plots where matplotlib is installed, and a run for each benchmark")
    if not any(line.answered for line in found.lines):
        refuse("no question could be asked; each benchmark's summary.json has the reasons", code=1)


def _verify(
    run: Path, items: Path | None, model: Path | None, videos: Path | None, *, device: str, as_json: bool, **how: int
) -> None:
    from aviot.evaluation.verify import UnfinishedRunError, recorded_config
    from aviot.evaluation.verify import verify as verify_run
    from aviot.utils.machine import process_device

    config, place = recorded_config(run, items=items, model=model, videos=videos), process_device(device)
    with _hints({UnfinishedRunError: "--resume"}):
        found = verify_run(config, partial(load_model, config.model, str(place), _silent), place, **how)
    if as_json:
        print(json.dumps(asdict(found) | {"holds": found.holds}, indent=2))
    else:
        _print_verification(found)
    if not found.holds:
        raise typer.Exit(1)


def _print_verification(found: "Verification") -> None:
    for line in found.environment:
        say(f"here: {line}")
    for line in (*found.broken, *found.changed):
        print(f"differs: {line}")
    print(f"{found.repeated} of {found.rerun} answers repeat; the run {'holds' if found.holds else 'does not hold'}")


def _silent(_: Any) -> None:
    """Says nothing."""
