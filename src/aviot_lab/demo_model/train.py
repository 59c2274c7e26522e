"""Training of the demo model, in pieces that continue where the last one stopped.

python -m aviot_lab.demo_model.train RUN [--seconds 500] [--before compressed] [--compressor uniform --start RUN]
python -m aviot_lab.demo_model.train RUN --switches allocation=calibrated
python -m aviot_lab.demo_model.train RUN --curriculum yardstick [--start RUN]
python -m aviot_lab.demo_model.train RUN --curriculum yardstick --architecture qwen
python -m aviot_lab.demo_model.train RUN --curriculum adapted --weights CHECKPOINT
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, get_args

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from aviot.backbones.checkpoints.shards import SINGLE
from aviot.evaluation.manifest import weight_hashes
from aviot.utils.files import atomic_folder, check_folder, folder_lock
from aviot.utils.journal import read_rows
from aviot.utils.machine import commit, device_named, machine, versions
from aviot_lab.demo_model.accuracy import Setting, accuracy
from aviot_lab.demo_model.curriculum import CURRICULA, Curriculum, Task
from aviot_lab.demo_model.families import batches_of
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.demo_model.log import LOG, REPORT, Log, finished_pieces
from aviot_lab.demo_model.networks import (
    Architecture,
    compressor_config,
    configure,
    loaded_weights,
    new_network,
    switches_of,
)
from aviot_lab.demo_model.optimizers import optimizers_of
from aviot_lab.demo_model.state import STATE, load_compressor, load_state, save_state
from aviot_lab.demo_model.tokenizer import TOKENIZER_FOLDER
from aviot_lab.demo_model.training_model import TrainingModel
from aviot_lab.methods import CompressorName
from aviot_lab.world import World, WorldConfig

Given = ParamSpec("Given")

ELSEWHERE = "name another folder for the run"
CLIP = 1.0  # largest norm of the gradient
EVALUATED_FRAMES = (16, 64)  # of the held-out videos at the end of a piece
EVALUATED_SCENES = 256
RATIOS = (2.0, 4.0, 10.0)  # of the held-out videos, from the last phase on
COMPRESSORS = [name for name in get_args(CompressorName) if name not in ("random-tokens", "none")]
DROPPED_RATIOS = (2.0, 4.0, 10.0, 20.0)  # of the held-out videos, after training on dropped tokens
OTHER_RATIO = 4.0  # of compressors that the model is not trained with


def alone_in_folder(function: Callable[Concatenate[Path, Given], None]) -> Callable[Concatenate[Path, Given], None]:
    """Make a function hold the lock of the folder that is its first argument."""

    @wraps(function)
    def alone(folder: Path, /, *arguments: Given.args, **options: Given.kwargs) -> None:
        check_folder(folder, ELSEWHERE)
        with folder_lock(folder, f"wait until it ends, or {ELSEWHERE}"):
            function(folder, *arguments, **options)

    return alone


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of one piece of a run."""

    device: torch.device
    seconds: float = float("inf")  # time limit
    before: Task | None = None  # stop where this task begins
    workers: int = 0  # processes that make batches
    compressor: CompressorName = "aviot"
    start: Path | None = None  # a run that a new one continues
    weights: Path | None = None  # a checkpoint whose weights a new run begins with; it has no auxiliary heads to train
    curriculum: str = "demo"  # its name, for the log
    architecture: Architecture = "llava"
    switches: str = ""  # of the compressor, where they are not the paper's, as name=value separated by spaces
    autocast: bool = False  # products in bfloat16 on a CPU, as on a GPU; faster if the CPU has instructions for it
    compiled: bool = False  # compile the layers of encoder and decoder, which takes a while once
    unexamined: bool = False  # skip the held-out evaluation


@dataclass(frozen=True, eq=False)
class Run:
    """A run that was loaded or started: its model and optimizers, and the steps of the next piece."""

    model: TrainingModel
    optimizers: tuple[Optimizer, ...]
    tokenizer: PreTrainedTokenizerFast
    step: int
    end: int


@alone_in_folder
def train(folder: Path, curriculum: Curriculum, options: TrainOptions) -> None:
    """Train until the curriculum or the time is over or a task begins; then write the state and evaluate."""
    began = time.monotonic()
    _check_runs(folder, options)
    run = _load_run(folder, curriculum, options)
    if options.compiled:
        run.model.compile_layers()
    with atomic_folder(folder / TOKENIZER_FOLDER) as place:
        run.tokenizer.save_pretrained(place)
    log = Log(folder)
    log.write(
        {
            "began": run.step,
            "start": None if options.start is None else options.start.name,
            "compressor": options.compressor,
            "curriculum": options.curriculum,
            "architecture": options.architecture,
            "switches": options.switches,
            "weights": None if options.weights is None else weight_hashes(options.weights)[SINGLE],
            "data": data_fingerprint(curriculum, run.tokenizer, run.model.family),
            "machine": machine(options.device),
            "versions": versions(),
            "commit": commit(),
        }
    )
    step = _train_steps(run, curriculum, options, log, until=began + options.seconds)
    save_state(folder, run.model, run.optimizers, step, compressor_config(run.model.model))
    log.write({"ended": step, "seconds": round(time.monotonic() - began, 1)})
    if not options.unexamined:
        with _precision(options):
            settings = settings_after(curriculum, step, options.compressor)
            evaluate(run.model.model, run.tokenizer, curriculum.seed, step, log, settings)


def _check_runs(folder: Path, options: TrainOptions) -> None:
    """Raise ValueError unless a run in this folder can be started or continued with these options."""
    start = options.start
    if start is not None and not (start / STATE).is_file():
        raise ValueError(f"{start} has no {STATE}; --start must name the directory of a run")
    resumes = (folder / STATE).is_file()
    if resumes and start is not None:
        raise ValueError(f"{folder} has a run of its own; leave --start out to go on with it, or name another folder")
    pieces = [began for began, _ in finished_pieces(read_rows(folder / LOG))]
    firsts = {"architecture": "llava", "curriculum": "demo", "compressor": "aviot", "switches": ""}
    for option, first in firsts.items():
        earlier = {began.get(option, first) for began in pieces} - {getattr(options, option)}
        if resumes and earlier:
            name = earlier.pop()
            raise ValueError(f"{folder} was trained with {name}; go on with --{option} {name}, or name another folder")
    if start is not None and options.weights is not None:
        raise ValueError("a run starts from another run or from a checkpoint's weights; leave --start or --weights out")


def _load_run(folder: Path, curriculum: Curriculum, options: TrainOptions) -> Run:
    """Return the run in the folder, or a new one that starts where `options.start` stopped."""
    start = options.start
    known = folder if start is None else start
    if options.weights is None:
        tokenizer, network = new_network(known, options.architecture, curriculum.seed)
    else:
        tokenizer, network = loaded_weights(options.weights)
    resumes = start is None and (folder / STATE).is_file()
    configure(network, load_compressor(known), {} if resumes else switches_of(options.switches))
    alone = options.weights is not None
    model = TrainingModel(network, tokenizer, options.compressor, auxiliary=not alone).to(options.device)
    optimizers = optimizers_of(model)
    step = load_state(known, model, optimizers)
    fewer = curriculum.begin_of_fewer()
    if start is not None and step > fewer:
        raise ValueError(
            f"{start} is at step {step:,} and was trained on {curriculum.at(fewer)[0].task} videos from step "
            f"{fewer:,}; --start names a run that stopped with --before compressed"
        )
    end = curriculum.steps if options.before is None else curriculum.begin_of(options.before)
    if step >= end:
        raise ValueError(f"{known} is at step {step:,}, so none is left up to {end:,}")
    return Run(model, optimizers, tokenizer, step, end)


def _train_steps(run: Run, curriculum: Curriculum, options: TrainOptions, log: Log, *, until: float) -> int:
    """Train to the run's end or until the clock says so; return the number of finished steps."""
    loader = DataLoader(
        batches_of(curriculum, run.tokenizer, run.model.family),
        batch_size=None,
        sampler=range(run.step, run.end),
        num_workers=options.workers,
        prefetch_factor=4 if options.workers else None,
        pin_memory=options.device.type == "cuda",  # its thread takes batches from the workers ahead of time
    )
    step = run.step
    for batch in loader:
        log.waited()
        phase, _ = curriculum.at(step)
        if phase.task != "patches":
            run.model.freeze_encoder()
        for group in (group for optimizer in run.optimizers for group in optimizer.param_groups):
            group["lr"] = curriculum.rate(step)
        with _precision(options):  # for one step: autocast caches cast weights until it ends
            losses, shares = run.model.losses(batch)
        torch.stack(list(losses.values())).sum().backward()
        norm = nn.utils.clip_grad_norm_(run.model.parameters(), CLIP)
        for optimizer in run.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if step % REPORT == 0 or step == run.end:
            run.model.recalibrate()
        log.add(step, phase, {**losses, **shares, "norm": norm})
        if step % REPORT == 0 and time.monotonic() > until:
            break
    return step


def compressor_of(curriculum: Curriculum, named: CompressorName | None) -> CompressorName:
    """Return the compressor that a curriculum is trained with; raise ValueError if it needs none and one was named."""
    if any(phase.task == "compressed" for phase in curriculum.phases):
        return named or "aviot"
    if named is not None:
        raise ValueError(f"this curriculum drops tokens and compresses nothing; leave --compressor {named} out")
    return "none"


def _precision(options: TrainOptions) -> torch.autocast:
    kind = options.device.type
    return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda" or options.autocast)


def settings_after(curriculum: Curriculum, step: int, compressor: CompressorName) -> list[Setting]:
    """Return the settings of the held-out evaluation after a step: uncompressed only, before the last phase."""
    settings: list[Setting] = [("none", None)]
    task = curriculum.at(step - 1)[0].task
    if task == "dropped":
        settings += [("random-tokens", ratio) for ratio in DROPPED_RATIOS]
    if task == "compressed":
        settings += [(compressor, ratio) for ratio in RATIOS]
        others: tuple[CompressorName, ...] = ("aviot", "segment-mean")
        settings += [(other, OTHER_RATIO) for other in others if other != compressor]
    return settings


def evaluate(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    step: int,
    log: Log,
    settings: Sequence[Setting],
) -> None:
    """Log the accuracy on held-out questions, by family."""
    world = World(WorldConfig(seed=seed))
    for frames in EVALUATED_FRAMES:
        scenes = range(EVALUATED_SCENES)
        correct = accuracy(model, tokenizer, world, split="validation", scenes=scenes, frames=frames, settings=settings)
        for (name, ratio), families in correct.items():
            every = [good for answers in families.values() for good in answers]
            log.write(
                {
                    "step": step,
                    "frames": frames,
                    "compressor": name,
                    "ratio": ratio,
                    "questions": len(every),
                    "right": round(sum(every) / len(every), 4),
                    "families": {family: round(sum(g) / len(g), 3) for family, g in sorted(families.items())},
                }
            )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="time limit; the same command continues",
    )
    parser.add_argument("--before", choices=get_args(Task), help="stop before this task")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--workers", type=int, default=8, help="processes that make batches, default 8")
    parser.add_argument("--compressor", choices=COMPRESSORS, help="default aviot")
    parser.add_argument("--curriculum", choices=CURRICULA, default="demo", help="default demo")
    parser.add_argument("--architecture", choices=get_args(Architecture), default="llava", help="default llava")
    parser.add_argument("--start", type=Path, help="a run to start from")
    parser.add_argument(
        "--weights", type=Path, help="a checkpoint whose weights a new run begins with; answers alone are learned"
    )
    parser.add_argument(
        "--switches", nargs="*", default=[], help="of the compressor, such as allocation=calibrated; default none"
    )
    parser.add_argument("--compiled", action="store_true", help="compile the layers with torch")
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16 on a CPU, as on a GPU")
    parser.add_argument("--unexamined", action="store_true", help="skip the held-out evaluation at the end")
    given = vars(parser.parse_args())
    torch.multiprocessing.set_sharing_strategy("file_system")  # twice as fast as by descriptor
    try:
        folder, device = given.pop("folder"), device_named(given.pop("device"))
        curriculum = CURRICULA[given["curriculum"]]
        given["switches"] = " ".join(sorted(given["switches"]))
        given["compressor"] = compressor_of(curriculum, given["compressor"])
        train(folder, curriculum, TrainOptions(device=device, **given))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "stopped: the state before this piece is untouched, and the same command goes on from it\n")


if __name__ == "__main__":
    main()
