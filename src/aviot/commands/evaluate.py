"""`aviot evaluate`: score a user's own items or the paper's benchmarks, reproducibly."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.expand import expand_groups
from aviot.commands.groups import InstructionOptions, ModelOptions, SamplingOptions
from aviot.commands.model import DEMO_MODEL_ANSWERS, ModelChoice
from aviot.commands.options import METHODS, Json
from aviot.commands.terminal import hints, mistakes, refuse, say
from aviot.methods.registry import DEFAULT
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
    typer.Option("--ratio", "-r", help="Compression ratio, above 1; repeat for several. Default: the checkpoint's."),
]
Budgets = Annotated[
    list[str],
    typer.Option("--budget", help="Another budget: keep=0.1, tokens=2048, supports=16 or auto; repeat for several."),
]
Methods = Annotated[
    list[str],
    typer.Option(
        "--method", "--compressor", help=f"Compression method: {METHODS}; repeat for several. Default: {DEFAULT}."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", "--out", help="Folder for the run. Default: ITEMS' name and -evaluation."),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", help="Ask only the first N items (of each benchmark with --suite). Default: all.", metavar="N"
    ),
]
By = Annotated[
    list[str],
    typer.Option("--by", help="Also report scores by this column of the items; repeat for several.", metavar="COLUMN"),
]
Videos = Annotated[Path | None, typer.Option(help="Folder that video paths are relative to. Default: that of ITEMS.")]
MaxNewTokens = Annotated[int | None, typer.Option(help="Longest answer, in tokens. Default: 64, or the benchmark's.")]
Suite = Annotated[
    str | None,
    typer.Option(help="paper: run all ten benchmarks and compare with the paper's results. Default: score ITEMS."),
]
Benchmark = Annotated[
    str | None,
    typer.Option(
        help="Temporal grounding: ITEMS is the file of charades-sta, activitynet-captions, qvhighlights or timelens. "
        "Default: ITEMS are your own."
    ),
]


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """A judge of open answers, and how patiently it is asked."""

    judge: Annotated[
        str | None,
        typer.Option(
            help="Base URL, up to /v1, of an OpenAI-compatible server that judges open answers. Default: no judge."
        ),
    ] = None
    judge_model: Annotated[str, typer.Option(help="Name of the judge's model.")] = "gpt-4o"
    judge_key: Annotated[
        str | None, typer.Option(help="Environment variable with the judge's API key. Default: no key.")
    ] = None
    judge_timeout: Annotated[float, typer.Option(help="Time limit of one reply of the judge, in seconds.")] = 60.0
    judge_attempts: Annotated[int, typer.Option(help="Most attempts to get a verdict.")] = 6

    def endpoint(self) -> "Endpoint | None":
        """Return the judge's server; None without a judge."""
        from aviot.evaluation.endpoint import Endpoint

        if self.judge is None:
            return None
        if not self.judge_model.strip():
            raise ValueError("--judge-model must name the judge's model, got an empty name")
        return Endpoint(
            url=self.judge,
            model=self.judge_model,
            key_variable=self.judge_key,
            timeout=self.judge_timeout,
            attempts=self.judge_attempts,
        )


@expand_groups
def evaluate(
    items: Items = None,
    *,
    model: ModelOptions,
    ratio: Ratios = [],  # noqa: B006
    budget: Budgets = [],  # noqa: B006
    method: Methods = [],  # noqa: B006
    output: Output = None,
    limit: Limit = None,
    by: By = [],  # noqa: B006
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a run, or add ratios, methods or items to it.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="With --resume: ask again the questions that failed.")] = False,
    suite: Suite = None,
    benchmark: Benchmark = None,
    verify: Annotated[
        Path | None,
        typer.Option(help="Ask a sample of a finished run's questions again and compare the answers.", metavar="RUN"),
    ] = None,
    sample: Annotated[int, typer.Option(help="Number of questions that --verify asks again.")] = 20,
    videos: Videos = None,
    split: Annotated[str | None, typer.Option(help="Split of a dataset folder. Default: its only one.")] = None,
    batch: Annotated[int, typer.Option(help="Number of questions about a video per batch.")] = 1,
    max_new_tokens: MaxNewTokens = None,
    instructions: InstructionOptions,
    judge: JudgeOptions,
    sampling: SamplingOptions,
    seed: Annotated[int, typer.Option(help="Seed of the sample of --verify.")] = 0,
    as_json: Json = False,
) -> None:
    """Score your own items at several ratios and with several methods; each video is encoded once.

    Writes results.jsonl, summary.json and manifest.json, and results.csv, summary.csv and summary.md for spreadsheets
    and documents. --resume continues an interrupted run and adds ratios and methods to a finished one. torchrun and
    srun distribute a run over processes. --suite paper takes a folder with one folder per benchmark and writes
    suite.md, suite.json and plots. Exit code 1: nothing could be answered, or --verify found a difference.

    Example: aviot evaluate items.jsonl -m checkpoints/aviot-7b -r 4 -r 10 --method aviot --method uniform
    """
    with mistakes():
        first = World.here().rank == 0
        chosen = model.choice()
        instructed = bool(instructions.given)
        if verify is not None:
            unused = {
                "ratio": ratio,
                "budget": budget,
                "method": method,
                "output": output,
                "limit": limit,
                "by": by,
                "resume": resume or retry,
                "suite": suite,
                "benchmark": benchmark,
                "split": split,
                "batch": batch != 1,
                "max-new-tokens": max_new_tokens,
                "instruction": instructed,
                "judge": judge.judge,
                "sampling": sampling.given,
            }
            _refuse_unused("--verify repeats a run's own questions with its own settings", unused)
            _refuse_unused(
                "--verify loads the model as the run did", {"dtype": model.dtype != "auto", "quantize": model.quantize}
            )
            folder = None if model.model is None else chosen.folder
            _verify(verify, items, folder, videos, chosen, sample=sample, seed=seed, as_json=as_json)
            return
        if items is None:
            raise ValueError("give ITEMS, or --verify RUN")
        if suite is None and not items.exists():
            raise ValueError(f"{items}: no such file; give JSON, JSONL or a dataset folder")
        if retry and not resume:
            raise ValueError("--retry asks the failed questions of a run again; add --resume")
        if suite is not None:
            if suite != "paper":
                raise ValueError(f"--suite must be paper, got {suite!r}")
            unused = {"videos": videos, "split": split, "by": by, "instruction": instructed, "benchmark": benchmark}
            _refuse_unused("--suite uses the benchmarks' own videos, splits and instructions", unused)
        if benchmark is not None:
            unused = {"split": split, "instruction": instructed}
            _refuse_unused("--benchmark uses the benchmark's own split and instruction", unused)
        from aviot.budget import parse_budget
        from aviot.evaluation.config import EvaluationConfig
        from aviot.request import MAX_NEW_TOKENS

        config = EvaluationConfig(
            items=items,
            model=chosen.folder,
            out=output or Path(f"{items.stem}-evaluation"),
            videos=videos,
            split=split,
            ratios=tuple(ratio),
            budgets=tuple(map(parse_budget, budget)),
            methods=tuple(method) or (DEFAULT,),
            sampling=sampling.given,
            instructions=instructions.instructions(),
            max_new_tokens=MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens,
            batch=batch,
            benchmark=benchmark,
            seed=seed,
            limit=limit,
            by=tuple(dict.fromkeys(by)),
            limits=sampling.limits,
            judge=judge.endpoint(),
            loading=chosen.options,
            base=model.base,
        )
        if suite is None:
            _check_items(config)
        if model.model is None:
            say(DEMO_MODEL_ANSWERS)
            chosen = replace(chosen, name=chosen.folder)
        if suite is not None:
            _suite(config, chosen, max_new_tokens, resume=resume, retry=retry, as_json=as_json, first=first)
        else:
            _evaluate(config, chosen, resume=resume, retry=retry, as_json=as_json, first=first)


def _check_items(config: "EvaluationConfig") -> None:
    """Raise ValueError for unusable items and unknown columns, before torch is imported."""
    from aviot.evaluation.measures import check_columns
    from aviot.evaluation.questions import read_questions
    from aviot.evaluation.reading import SplitError

    with hints({SplitError: "--split"}):
        items = read_questions(config)
    check_columns(items.items[: config.limit], config.by)


def _evaluate(
    config: "EvaluationConfig", chosen: ModelChoice, *, resume: bool, retry: bool, as_json: bool, first: bool
) -> None:
    from aviot.evaluation.report import as_dict, print_summary
    from aviot.evaluation.run import RESULTS, NoRunError, RunExistsError
    from aviot.evaluation.run import evaluate as run_evaluation
    from aviot.utils.machine import process_device

    place = process_device(chosen.device)
    report = say if first and sys.stderr.isatty() else _silent
    load = partial(chosen.load, report, device=str(place))
    with hints({RunExistsError: "--resume", NoRunError: "without --resume"}):
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


def _refuse_unused(reason: str, options: Mapping[str, object]) -> None:
    """Raise ValueError for options that were given but have no effect."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ValueError(f"{reason}; leave out the options for {', '.join(given)}")


def _say_unfinished(out: Path, *, first: bool) -> None:
    """Print why there is no summary yet."""
    if first and not out.is_file():
        say(f"other processes are still running, the last of them writes {out}; if one was killed, add --resume")


def _suite(
    config: "EvaluationConfig",
    chosen: ModelChoice,
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

    place = process_device(chosen.device)
    report = say if first and sys.stderr.isatty() else _silent
    sampling = paper_sampling(config.sampling)
    ratios = config.ratios if config.budgets else paper_ratios(config.ratios, sampling)
    base = replace(config, sampling=sampling, ratios=ratios)
    with hints({RunExistsError: "--resume", NoRunError: "without --resume"}):
        found = run_suite(
            base,
            partial(chosen.load, report, device=str(place)),
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
    run: Path,
    items: Path | None,
    model: Path | None,
    videos: Path | None,
    chosen: ModelChoice,
    *,
    as_json: bool,
    **how: int,
) -> None:
    from aviot.evaluation.verify import UnfinishedRunError, recorded_config
    from aviot.evaluation.verify import verify as verify_run
    from aviot.utils.machine import process_device

    config = recorded_config(run, items=items, model=model, videos=videos, base=chosen.base)
    place = process_device(chosen.device)
    recorded = replace(chosen.options, dtype=config.loading.dtype, quantization=config.loading.quantization)
    load = partial(
        replace(chosen, name=config.model, base=config.base, options=recorded).load, _silent, device=str(place)
    )
    with hints({UnfinishedRunError: "--resume"}):
        found = verify_run(config, load, place, **how)
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
    """Ignore a progress report."""
