"""`aviot train`."""

from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from aviot.terminal import mistakes, refuse, say
from aviot.utils.launcher import World

if TYPE_CHECKING:
    from aviot.training.config import TrainingConfig
    from aviot.training.resuming import Resume, UnfitCheckpoint, UnfitRecord

NEWEST, LAST_GOOD = "newest", "last-good"
GRACE_SECONDS = 1.0  # for which other processes leave the first the word: a launcher ends all once one has ended


class TrainCommand(TyperCommand):
    """A command whose --resume may have a value, for which typer has no word: alone it means --resume=newest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a --resume that stands alone its value."""
        return super().parse_args(ctx, [f"--resume={NEWEST}" if word == "--resume" else word for word in args])


def train(
    config: Annotated[Path, typer.Option("--config", "-c", help="A YAML file; see configs/.", show_default=False)],
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar=f"[={LAST_GOOD}]",
            help="Go on from the newest checkpoint, once every file of it has been verified; "
            f"={LAST_GOOD}: from the newest one that is whole.",
            show_default=False,
        ),
    ] = None,
    resume_from: Annotated[
        Path | None,
        typer.Option(metavar="CHECKPOINT", help="Go on from this checkpoint of the run.", show_default=False),
    ] = None,
    changes: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the file; repeat.")
    ] = [],  # noqa: B006
) -> None:
    """Train what the paper trains, on this process or on as many as torchrun starts.

    Checkpoints go to the run's folder, each loadable by --model of the other commands. Exit code 1: the loss or a
    gradient was no number; the examples are named and the last checkpoint is whole. SIGTERM and Ctrl-C end the run
    after its current step, with a checkpoint to --resume from: exit codes 143 and 130. A second one ends it at once.

    Example: torchrun --nproc-per-node 8 -m aviot train --config configs/llava_video_178k.yaml
    """
    with mistakes():
        world = World.here()
    first = world.rank == 0
    with mistakes(silent=not first):
        if not config.is_file():
            raise ValueError(f"{config}: no such file; expected a YAML file, see configs/")
        chosen = _chosen_start(resume, resume_from)
        from aviot.training.reading import read_config
        from aviot.training.reporting import require_trackers

        settings = read_config(config, changes)
        require_trackers(settings.logging.report_to)
    try:
        with mistakes():
            code = _run(settings, chosen, first=first)
    except typer.Exit as ended:
        code = ended.exit_code
    if world.processes > 1:
        from aviot.training.ending import end_process

        end_process(code)
    raise typer.Exit(code)


def _chosen_start(resume: str | None, resume_from: Path | None) -> "Resume":
    """Return what to go on from, as the options say."""
    if resume not in (None, NEWEST, LAST_GOOD):
        raise ValueError(f"--resume={resume}: say --resume, --resume={LAST_GOOD} or --resume-from CHECKPOINT")
    if resume_from is not None:
        if resume == LAST_GOOD:
            raise ValueError(f"--resume={LAST_GOOD} looks for a checkpoint and --resume-from names one; leave one out")
        return resume_from
    return "last-good" if resume == LAST_GOOD else resume is not None


def _run(settings: "TrainingConfig", chosen: "Resume", *, first: bool) -> int:
    """Train; returns the exit code of a run that ended in order."""
    from aviot.training.interruption import TrainingInterrupted
    from aviot.training.loss import TrainingStopped
    from aviot.training.resuming import UnfitCheckpoint, UnfitRecord
    from aviot.training.run import train as run_training
    from aviot.training.together import RefusedElsewhere

    try:
        last = run_training(settings, resume=chosen)
        if first:
            print(last)
    except TrainingInterrupted as stopped:
        if first:
            say(f"aviot: {stopped}")
        return stopped.exit_code
    except TrainingStopped as error:
        refuse(str(error), code=1)
    except (UnfitCheckpoint, UnfitRecord) as error:
        refuse(f"{error}. {_advice(error)}")
    except RefusedElsewhere:
        sleep(GRACE_SECONDS)
        return 2
    return 0


def _advice(error: "UnfitCheckpoint | UnfitRecord") -> str:
    """Say how to go on where a run is not resumed as it is."""
    ways = []
    if error.whole is not None:
        ways.append(f"--resume={LAST_GOOD} or --resume-from {error.whole} goes on from that one")
    if error.can_be_named is not None:
        ways.append(f"--resume-from {error.can_be_named} takes it as it is, unverified")
    return "; ".join(ways) or "Name a whole one with --resume-from, copy it again, or begin again in another output"
