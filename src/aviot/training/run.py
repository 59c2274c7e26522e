"""One training run, in order."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import PrinterCallback, TrainerCallback

from aviot.data import Corpus, DataError
from aviot.training import saving
from aviot.training.arguments import layout_here, training_arguments
from aviot.training.config import TrainingConfig
from aviot.training.engine import read_engine
from aviot.training.identity import ResumeError, check_identity, identity
from aviot.training.interruption import StopOnSignal, TrainingInterrupted
from aviot.training.progress import LogLastStep, ProgressDisplay
from aviot.training.record import RUN, record_run
from aviot.training.reporting import require_trackers
from aviot.training.sharding import HoldFront
from aviot.training.source import open_held_out, training_data
from aviot.training.start import load_model, load_processor
from aviot.training.trainer import AviotTrainer

Report = Callable[[str], None]


def train(
    config: TrainingConfig,
    *,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    report: Report = lambda _: None,
) -> Path:
    """Train, or resume what was begun; returns the last checkpoint. TrainingInterrupted if a signal ended the run."""
    run = Path(config.output)
    require_trackers(config.logging.report_to)
    checkpoint = find_start(run, resume=resume)
    engine, layout = read_engine(config.engine), layout_here(config)
    arguments = training_arguments(config, engine, layout)
    with arguments.main_process_first(local=False, desc="reading records"):
        corpus, held_out = Corpus.open(config.data), open_held_out(config)
    same = identity(config, engine, corpus.fingerprint)
    if checkpoint is not None:
        check_identity(checkpoint, same)
        if checkpoint == saving.whole_path(run, config.optimization.steps):
            report(f"the run is complete: {checkpoint}")
            return checkpoint
    report("load")
    processor = load_processor(config, checkpoint)
    model = load_model(config, checkpoint, getattr(arguments, "hf_deepspeed_config", None))
    data = training_data(config, corpus, model, processor, layout, held_out)
    if layout.rank == 0:
        saving.remove_leftovers(run)
        record_run(run, config, same, examples=len(corpus), processes=layout.ranks)
    display, stop = ProgressDisplay(), StopOnSignal(speaks=layout.rank == 0)
    needed = [*([HoldFront()] if engine.name == "zero3" else []), stop, LogLastStep(), display]
    trainer = AviotTrainer(model, arguments, data, processor, identity=same, callbacks=[*callbacks, *needed])
    trainer.remove_callback(PrinterCallback)
    try:
        with stop:
            trainer.train(checkpoint)
    except DataError:
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


def find_start(run: Path, *, resume: bool) -> Path | None:
    """The checkpoint to go on from; None at a run's beginning, or where it ended before it saved anything."""
    found = saving.newest(run)
    if resume and not (run / RUN).is_file():
        raise ResumeError(f"{run} holds no run to resume; leave out --resume to begin one")
    if not resume and found is not None:
        raise ResumeError(f"{run} holds {found.name}; add --resume to go on from it, or choose another output")
    return found
