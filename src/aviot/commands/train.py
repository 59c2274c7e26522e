"""`aviot train`."""

from pathlib import Path
from typing import Annotated

import typer

from aviot.launcher import World
from aviot.terminal import mistakes, refuse, say


def train(
    config: Annotated[Path, typer.Option("--config", "-c", help="A YAML file; see configs/.", show_default=False)],
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
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
        from aviot.training.reading import read_config
        from aviot.training.reporting import require_trackers

        settings = read_config(config, changes)
        require_trackers(settings.logging.report_to)
    code = 0
    with mistakes():
        from aviot.training.interruption import TrainingInterrupted
        from aviot.training.loss import TrainingStopped
        from aviot.training.run import train as run_training

        try:
            last = run_training(settings, resume=resume)
            if first:
                print(last)
        except TrainingInterrupted as stopped:
            code = stopped.exit_code
            if first:
                say(f"aviot: {stopped}")
        except TrainingStopped as error:
            refuse(str(error), code=1)
    if world.processes > 1:
        from aviot.training.ending import end_process

        end_process(code)
    raise typer.Exit(code)
