"""One training run from its configuration to its last checkpoint."""

import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from aviot.data import BatchLayout, Corpus, DataError
from aviot.training import saving
from aviot.training.adapted_setup import StartingModel, check_trainable, load_adapted
from aviot.training.config import TrainingConfig, require_trackers
from aviot.training.config_files import Parallelism, read_parallelism
from aviot.training.datasets import open_held_out, training_data
from aviot.training.distributed import GatherPreDecoder, decide_on_rank_zero
from aviot.training.identity import (
    MODEL,
    ResumeError,
    StartPoint,
    adapter_identity,
    check_identity,
    record_start,
    run_identity,
    whole_model_digest,
)
from aviot.training.model_setup import load_model, load_processor
from aviot.training.progress import LogLastStep, ProgressDisplay
from aviot.training.resuming import Resume, find_start_point, set_aside_replaced
from aviot.training.shutdown import StopOnSignal, TrainingInterrupted, keep_alive
from aviot.training.trainer import AviotTrainer
from aviot.utils.files import check_folder, folder_lock
from aviot.utils.machine import join_launcher

logger = logging.getLogger(__name__)

ELSEWHERE = "choose another output"

Report = Callable[[str], None]


@dataclass(frozen=True)
class RunSetup:
    """A run's configuration with its parallelism, the Trainer's arguments, its start point, and its first model."""

    config: TrainingConfig
    parallelism: Parallelism
    layout: BatchLayout
    arguments: TrainingArguments
    start: StartPoint
    source: StartingModel

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return Path(self.config.output)


def train(
    config: TrainingConfig,
    *,
    resume: Resume = False,
    callbacks: Sequence[TrainerCallback] = (),
    report: Report = lambda _: None,
) -> Path:
    """Start or resume a run and return its last checkpoint; TrainingInterrupted if a signal ended the run."""
    require_trackers(config.logging.report_to)
    parallelism, layout = read_parallelism(config.parallelism), layout_here(config)
    source = check_trainable(config, parallelism)
    arguments = training_arguments(config, parallelism, layout)
    with ExitStack() as locks:
        start = decide_on_rank_zero(lambda: _claim(Path(config.output), resume, locks))
        return _train(RunSetup(config, parallelism, layout, arguments, start, source), callbacks, report)


def layout_here(config: TrainingConfig) -> BatchLayout:
    """Return this process's part of the global batch; the launcher's environment variables give its rank."""
    world = join_launcher()
    chosen = config.optimization
    return BatchLayout(chosen.global_batch, chosen.micro_batch, world.processes, world.rank)


def training_arguments(config: TrainingConfig, parallelism: Parallelism, layout: BatchLayout) -> TrainingArguments:
    """Return a configuration as the Trainer's arguments; making them joins the process group."""
    if parallelism.kind != "replicas" and "RANK" not in os.environ:
        raise ValueError(
            f"{parallelism.name} needs several processes, got one; start the run with torchrun, or set parallelism=null"
        )
    chosen, gpu = config.optimization, torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "output_dir": config.output,
        "max_steps": chosen.steps,
        "per_device_train_batch_size": layout.micro_batch,
        "gradient_accumulation_steps": layout.micro_steps,
        "learning_rate": chosen.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": math.ceil(chosen.warmup * chosen.steps),
        "weight_decay": chosen.weight_decay,
        "adam_beta1": chosen.betas[0],
        "adam_beta2": chosen.betas[1],
        "max_grad_norm": chosen.max_gradient_norm,
        "optim": "adamw_torch_fused" if gpu else "adamw_torch",
        "bf16": config.precision == "bf16",
        "seed": config.seed % 2**32,  # NumPy's limit
        "logging_steps": config.logging.every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a non-finite loss ends the run
        "report_to": list(config.logging.report_to) or "none",
        "save_steps": config.saving.every,
        "ignore_data_skip": True,  # the sampler starts at the resumed step
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "log_level": "warning",
        "use_cpu": not gpu,
        "use_cache": True,  # saved with the checkpoint for inference; training steps turn it off
        "ddp_find_unused_parameters": False,  # every trained weight gets a gradient
    }
    if config.held_out is not None:
        arguments |= {"eval_strategy": "steps", "eval_steps": config.held_out.every}
    made = TrainingArguments(**arguments, **parallelism.arguments())
    if layout.ranks == 1 and made.n_gpu > 1:
        made._n_gpu = 1  # otherwise the Trainer uses DataParallel; several GPUs need torchrun
    return made


def _claim(run: Path, resume: Resume, locks: ExitStack) -> StartPoint:
    """Lock the run folder and find the start point."""
    if resume in (True, "last-good") and not run.is_dir():
        return find_start_point(run, resume=resume)  # which raises, before a folder is created
    check_folder(run, ELSEWHERE)
    locks.enter_context(folder_lock(run, f"wait until it ends, or {ELSEWHERE}"))
    return find_start_point(run, resume=resume)


def _train(setup: RunSetup, callbacks: Sequence[TrainerCallback], report: Report) -> Path:
    """Open the data, check that the run may be resumed, and train unless it is complete."""
    config, start = setup.config, setup.start
    with setup.arguments.main_process_first(local=False, desc="reading records"):
        corpus, held_out = Corpus.open(config.data), open_held_out(config)
    model_digest = decide_on_rank_zero(lambda: base_model_digest(config, setup.source))
    identity = run_identity(config, setup.parallelism, corpus.fingerprint, model_digest)
    if setup.source.writes_adapters:
        identity = adapter_identity(identity, setup.source.family.family)
    if start.checkpoint is not None:
        check_identity(start.checkpoint, identity)
        if start.step == config.optimization.steps:
            report(f"the run is complete: {start.checkpoint}")
            return start.checkpoint
        _warn_of_other_processes(setup)
    report("load")
    display, stop = ProgressDisplay(), StopOnSignal(announces=setup.layout.rank == 0)
    trainer = _make_trainer(setup, corpus, held_out, identity, [*callbacks, *_own_callbacks(setup, stop, display)])
    _fit(trainer, start, stop, display)
    last = saving.checkpoint_path(setup.folder, trainer.state.global_step)
    if stop.stopped_by:
        raise TrainingInterrupted(stop.stopped_by, last, config.optimization.steps)
    return last


def base_model_digest(config: TrainingConfig, source: StartingModel) -> str | None:
    """Hash the weights that a resumed run loads again: all of an adapter's base, or with LoRA those of the decoder."""
    if source.writes_adapters:
        return source.digest()
    return None if config.lora is None else whole_model_digest(config.model)


def _warn_of_other_processes(setup: RunSetup) -> None:
    """Warn on rank 0 if another number of processes wrote the checkpoint."""
    start, ranks = setup.start, setup.layout.ranks
    if setup.layout.rank == 0 and start.processes not in (None, ranks):
        logger.warning(
            "%s has the random states of %s processes and the run now has %d: dropout will draw other values",
            start.checkpoint,
            start.processes,
            ranks,
        )


def _own_callbacks(setup: RunSetup, stop: StopOnSignal, display: ProgressDisplay) -> list[TrainerCallback]:
    """Return the callbacks of every run, in the order in which they have to be called."""
    return [*([GatherPreDecoder()] if setup.parallelism.name == "zero3" else []), stop, LogLastStep(), display]


def _make_trainer(
    setup: RunSetup,
    corpus: Corpus,
    held_out: Corpus | None,
    identity: dict[str, Any],
    callbacks: list[TrainerCallback],
) -> AviotTrainer:
    """Load the model, prepare the run folder on rank 0, and return the trainer."""
    config, layout, start = setup.config, setup.layout, setup.start
    model: Any
    processor: Any
    if setup.source.writes_adapters:
        model, processor = load_adapted(config, setup.source, identity[MODEL], start.checkpoint)
    else:
        processor = load_processor(config, start.checkpoint)
        model = load_model(config, start.checkpoint, getattr(setup.arguments, "hf_deepspeed_config", None))
    data = training_data(config, corpus, model, processor, layout, held_out)
    run = None
    if layout.rank == 0:
        saving.remove_leftovers(setup.folder)
        set_aside_replaced(setup.folder, start)
        run = record_start(setup.folder, config, identity, start, examples=len(corpus), processes=layout.ranks)
    trainer = AviotTrainer(model, setup.arguments, data, identity=identity, run=run, callbacks=callbacks)
    trainer.remove_callback(PrinterCallback)
    if layout.ranks > 1:
        keep_alive(trainer)
    return trainer


def _fit(trainer: AviotTrainer, start: StartPoint, stop: StopOnSignal, display: ProgressDisplay) -> None:
    """Train until the last step or a signal, then leave the process group."""
    try:
        with stop:
            trainer.train(start.checkpoint, step=start.step)
    except (DataError, ResumeError):
        raise
    except ValueError as error:  # after all checks it is a defect, not a user's mistake, and needs its traceback
        raise RuntimeError(f"training failed: {error}") from error
    finally:
        display.close()
    if torch.distributed.is_initialized():  # its threads would abort a process that ends while they run
        torch.distributed.destroy_process_group()
