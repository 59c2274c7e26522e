"""One training run, in order."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from aviot.data import BatchLayout, Corpus, DataError
from aviot.training import saving
from aviot.training.arguments import layout_here, training_arguments
from aviot.training.config import TrainingConfig
from aviot.training.ending import keep_until_end
from aviot.training.engine import Engine, read_engine
from aviot.training.identity import ResumeError, check_identity, identity, start_digest
from aviot.training.interruption import StopOnSignal, TrainingInterrupted
from aviot.training.progress import LogLastStep, ProgressDisplay
from aviot.training.record import Start, record_run
from aviot.training.reporting import require_trackers
from aviot.training.resuming import Resume, clear_way, find_start
from aviot.training.sharding import HoldFront
from aviot.training.source import open_held_out, training_data
from aviot.training.start import load_model, load_processor
from aviot.training.together import decided_by_first
from aviot.training.trainer import AviotTrainer
from aviot.utils.files import check_folder, folder_lock

logger = logging.getLogger(__name__)

ELSEWHERE = "choose another output"

Report = Callable[[str], None]


def train(
    config: TrainingConfig,
    *,
    resume: Resume = False,
    callbacks: Sequence[TrainerCallback] = (),
    report: Report = lambda _: None,
) -> Path:
    """Train, or resume what was begun; returns the last checkpoint. TrainingInterrupted if a signal ended the run."""
    require_trackers(config.logging.report_to)
    engine, layout = read_engine(config.engine), layout_here(config)
    arguments = training_arguments(config, engine, layout)
    with ExitStack() as held:
        start = decided_by_first(lambda: _claim(Path(config.output), resume, held))
        return _train(config, Setup(engine, layout, arguments, start), callbacks, report)


@dataclass(frozen=True)
class Setup:
    """How a run is spread over processes, and where it begins."""

    engine: Engine
    layout: BatchLayout
    arguments: TrainingArguments
    start: Start


def _claim(run: Path, resume: Resume, held: ExitStack) -> Start:
    """Take the lock of the run's folder, and find what the run goes on from."""
    if resume in (True, "last-good") and not run.is_dir():
        return find_start(run, resume=resume)  # which refuses, and leaves nothing behind
    check_folder(run, ELSEWHERE)
    held.enter_context(folder_lock(run, f"wait until it ends, or {ELSEWHERE}"))
    return find_start(run, resume=resume)


def _train(config: TrainingConfig, setup: Setup, callbacks: Sequence[TrainerCallback], report: Report) -> Path:
    run, start = Path(config.output), setup.start
    engine, layout, arguments = setup.engine, setup.layout, setup.arguments
    with arguments.main_process_first(local=False, desc="reading records"):
        corpus, held_out = Corpus.open(config.data), open_held_out(config)
    same = identity(config, engine, corpus.fingerprint, decided_by_first(lambda: start_digest(config)))
    if start.checkpoint is not None:
        check_identity(start.checkpoint, same)
        if start.step == config.optimization.steps:
            report(f"the run is complete: {start.checkpoint}")
            return start.checkpoint
        if layout.rank == 0 and start.processes not in (None, layout.ranks):
            logger.warning(
                "%s has the random states of %s processes and the run now has %d: what dropout draws will differ",
                start.checkpoint,
                start.processes,
                layout.ranks,
            )
    report("load")
    processor = load_processor(config, start.checkpoint)
    model = load_model(config, start.checkpoint, getattr(arguments, "hf_deepspeed_config", None))
    data = training_data(config, corpus, model, processor, layout, held_out)
    record = None
    if layout.rank == 0:
        saving.remove_leftovers(run)
        clear_way(run, start)
        record = record_run(run, config, same, start, examples=len(corpus), processes=layout.ranks)
    display, stop = ProgressDisplay(), StopOnSignal(speaks=layout.rank == 0)
    needed = [*([HoldFront()] if engine.name == "zero3" else []), stop, LogLastStep(), display]
    trainer = AviotTrainer(
        model, arguments, data, processor, identity=same, run=record, callbacks=[*callbacks, *needed]
    )
    trainer.remove_callback(PrinterCallback)
    if layout.ranks > 1:
        keep_until_end(trainer)
    try:
        with stop:
            trainer.train(start.checkpoint, step=start.step)
    except (DataError, ResumeError):
        raise
    except ValueError as error:  # past all checks it is no mistake of the user's, and where it came from has to show
        raise RuntimeError(f"training failed: {error}") from error
    finally:
        display.close()
    if torch.distributed.is_initialized():  # its threads would abort a process that ends with them
        torch.distributed.destroy_process_group()
    last = saving.whole_path(run, trainer.state.global_step)
    if stop.stopped_by:
        raise TrainingInterrupted(stop.stopped_by, last, config.optimization.steps)
    return last
