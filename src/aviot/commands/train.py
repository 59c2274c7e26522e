"""`aviot train`."""

from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from aviot.commands.terminal import mistakes, refuse, say
from aviot.utils.launcher import World

if TYPE_CHECKING:
    from aviot.training.config import TrainingConfig
    from aviot.training.resuming import Resume, UnfitCheckpoint, UnfitRun

NEWEST, LAST_GOOD = "newest", "last-good"
GRACE_SECONDS = 1.0  # that other ranks give rank 0 to print its error: launchers kill all processes once one ends


class TrainCommand(TyperCommand):
    """A command with an option whose value is optional, which typer lacks: --resume alone means --resume=newest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the default value to a --resume without one."""
        return super().parse_args(ctx, [f"--resume={NEWEST}" if word == "--resume" else word for word in args])


def train(
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", help="Configuration file in YAML; see configs/ for examples.", show_default=False
        ),
    ],
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar=f"[={LAST_GOOD}]",
            help="Resume the run from its newest checkpoint after verifying all its files; "
            f"={LAST_GOOD}: from the newest intact one. Default: start a new run.",
            show_default=False,
        ),
    ] = None,
    resume_from: Annotated[
        Path | None,
        typer.Option(metavar="CHECKPOINT", help="Resume the run from this checkpoint folder.", show_default=False),
    ] = None,
    changes: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the file; repeat for several."),
    ] = [],  # noqa: B006
) -> None:
    """Train a model as in the paper, on one process or on several that torchrun starts.

    Checkpoints are written to the configured output folder; --model of the other commands loads them. Exit code 1: the
    loss or a gradient was not finite; the message names the examples, and the last checkpoint is intact. SIGTERM and
    Ctrl-C end the run after its current step, with a checkpoint to --resume from: exit codes 143 and 130. A second
    signal ends it at once.

    Example: torchrun --nproc-per-node 8 -m aviot train --config configs/llava_video_178k.yaml
    """
    with mistakes():
        world = World.here()
    first = world.rank == 0
    with mistakes(silent=not first):
        if not config.is_file():
            raise ValueError(f"{config}: no such file; expected a YAML file, see configs/")
        start = _chosen_start(resume, resume_from)
        from aviot.training.config import require_trackers

        settings = _read_settings(config, changes)
        require_trackers(settings.logging.report_to)
    try:
        with mistakes():
            code = _run(settings, start, first=first)
    except typer.Exit as ended:
        code = ended.exit_code
    if world.processes > 1:
        from aviot.training.shutdown import end_process

        end_process(code)
    raise typer.Exit(code)


def _chosen_start(resume: str | None, resume_from: Path | None) -> "Resume":
    """Return the start that the options select, as `aviot.training.run.train` takes it."""
    if resume not in (None, NEWEST, LAST_GOOD):
        raise ValueError(f"--resume={resume}: expected --resume, --resume={LAST_GOOD} or --resume-from CHECKPOINT")
    if resume_from is not None:
        if resume == LAST_GOOD:
            raise ValueError(
                f"--resume={LAST_GOOD} selects a checkpoint and --resume-from names one; remove one of them"
            )
        return resume_from
    return "last-good" if resume == LAST_GOOD else resume is not None


def _read_settings(path: Path, changes: list[str]) -> "TrainingConfig":
    """Read the configuration file with the changes of --set."""
    from aviot.training.config import MissingSetting
    from aviot.training.config_files import ChangeError, read_config

    try:
        return read_config(path, changes)
    except MissingSetting as error:
        raise ValueError(f"{error}, or pass --set {error.name}=PATH") from error
    except ChangeError as error:
        raise ValueError(f"--set {error}") from error


def _run(settings: "TrainingConfig", start: "Resume", *, first: bool) -> int:
    """Train; returns the exit code of a run that ended without an unexpected error."""
    from aviot.training.distributed import RankZeroError
    from aviot.training.loss import TrainingStopped
    from aviot.training.resuming import NothingToResume, OutputInUse, UnfitCheckpoint, UnfitRun
    from aviot.training.run import train as run_training
    from aviot.training.shutdown import TrainingInterrupted

    try:
        last = run_training(settings, resume=start)
        if first:
            print(last)
    except TrainingInterrupted as stopped:
        if first:
            say(f"aviot: {stopped.problem}. To continue, add --resume to the same command")
        return stopped.exit_code
    except TrainingStopped as error:
        refuse(f"{error}. To resume from the last checkpoint, add --resume to the same command", code=1)
    except OutputInUse as error:
        refuse(f"{error.problem}; add --resume to continue from it, or choose another output")
    except NothingToResume as error:
        refuse(f"{error.problem}; remove --resume to start one")
    except (UnfitCheckpoint, UnfitRun) as error:
        refuse(f"{error}. {_advice(error)}")
    except RankZeroError:
        sleep(GRACE_SECONDS)
        return 2
    return 0


def _advice(error: "UnfitCheckpoint | UnfitRun") -> str:
    """Return the ways to resume a run that cannot be resumed from its newest checkpoint."""
    ways = []
    if error.intact is not None:
        ways.append(f"--resume={LAST_GOOD} or --resume-from {error.intact} resumes from that one")
    if error.usable_if_named is not None:
        ways.append(f"--resume-from {error.usable_if_named} uses it without verification")
    return "; ".join(ways) or "Name an intact one with --resume-from, copy it again, or start again in another output"
