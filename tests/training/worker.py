"""A program that tests start: `worker.py CONFIG [resume] [last-good] [kill=PLACE] [group] [signal=RANK:STEP]`.

It supports FSDP2 on CPUs, which accelerate does not, and does not use DeepSpeed's shared memory, which would have to be
compiled. The process kills itself at PLACE: step:N in the middle of step N, save:N while it writes that checkpoint.
RANK sends itself SIGTERM when STEP starts; with `group`, also to all processes that it started.
"""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from transformers import TrainerCallback

from aviot.training import saving
from aviot.training.config_files import read_config
from aviot.training.run import train
from aviot.training.shutdown import TrainingInterrupted, end_process
from aviot.training.trainer import AviotTrainer

create = AviotTrainer.create_accelerator_and_postprocess


def with_shards_on_cpus(self: Any) -> None:
    """Set up FSDP on CPUs as accelerate does on GPUs."""
    create(self)
    if self.args.fsdp and not self.is_fsdp_enabled:
        state = self.accelerator.state
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
        if state.mixed_precision != "no":
            state.fsdp_plugin.set_mixed_precision(state.mixed_precision)
        state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        self.is_fsdp_enabled = True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillInStep(TrainerCallback):
    """A callback that kills the process between two micro steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self.step:
            die()


class SignalInStep(TrainerCallback):
    """A callback that sends SIGTERM to one of the processes when a step starts."""

    def __init__(self, place: str, *, group: bool) -> None:
        self.rank, self.step = map(int, place.split(":"))
        self.group = group

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self.step and int(os.environ.get("RANK", "0")) == self.rank:
            if self.group:
                # from another process, since workers exit on a signal of their parent
                subprocess.run(["sh", "-c", f"trap '' TERM; kill -TERM -{os.getpgid(0)}"], check=True)
            else:
                os.kill(os.getpid(), signal.SIGTERM)


def kill_in_save(step: int) -> None:
    """Kill the process when a checkpoint is written and not yet renamed."""
    make_durable = saving.make_durable

    def interrupted(folder: Path) -> None:
        if folder == saving.partial_path(folder.parent, step):
            (folder / "model.safetensors").write_bytes(b"half")
            die()
        make_durable(folder)

    saving.make_durable = interrupted


def main(path: str, *words: str) -> None:
    AviotTrainer.create_accelerator_and_postprocess = with_shards_on_cpus  # type: ignore[method-assign]
    config, callbacks = read_config(path), []
    if config.parallelism is not None and "zero" in config.parallelism:
        module = importlib.import_module("deepspeed.comm.torch")  # as an attribute, the name is torch itself
        module.build_shm_op = lambda: None  # type: ignore[attr-defined]
    for word in words:
        if word.startswith("kill=step:"):
            callbacks = [KillInStep(int(word.rpartition(":")[2]))]
        elif word.startswith("kill=save:"):
            kill_in_save(int(word.rpartition(":")[2]))
        elif word == "group":
            os.setpgid(0, 0)
        elif word.startswith("signal="):
            callbacks = [SignalInStep(word.removeprefix("signal="), group="group" in words)]
    try:
        train(config, resume="last-good" if "last-good" in words else "resume" in words, callbacks=callbacks)
    except TrainingInterrupted as stopped:
        print(f"exit code {stopped.exit_code}: {stopped}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process()
