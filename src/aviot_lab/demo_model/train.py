"""Teach the small model its world, in pieces that go on where the last one stopped.

python -m aviot_lab.demo_model.train RUN [--seconds 500] [--before compressed] [--compressor uniform --start RUN]
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, get_args

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration
from aviot.request import CompressorName
from aviot.utils.files import atomic_folder, check_folder, folder_lock
from aviot.utils.journal import read_rows
from aviot.utils.machine import commit, device_named, machine, versions
from aviot_lab.demo_model.accuracy import Setting, accuracy
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.curriculum import CURRICULUM, Curriculum, Task
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.demo_model.lessons import Lessons
from aviot_lab.demo_model.log import LOG, REPORT, Log, finished_pieces
from aviot_lab.demo_model.optimizers import optimizers_of
from aviot_lab.demo_model.pupil import Pupil
from aviot_lab.demo_model.state import STATE, load_state, save_state
from aviot_lab.demo_model.tokenizer import KEPT, tokenizer_of
from aviot_lab.world import World, WorldConfig

Given = ParamSpec("Given")

ELSEWHERE = "name another folder for the run"
CLIP = 1.0  # of the gradient's norm
EXAMINED = (16, 64)  # frames of the held-out videos at the end of a piece
SCENES = 256
RATIOS = (2.0, 4.0, 10.0)  # at which they are compressed, once that has been taught
COMPRESSORS = [name for name in get_args(CompressorName) if name != "none"]
LOOK = 4.0  # the ratio of compressors that it was not taught with


def alone_in_folder(function: Callable[Concatenate[Path, Given], None]) -> Callable[Concatenate[Path, Given], None]:
    """Make a function hold the lock of the folder that is its first argument."""

    @wraps(function)
    def alone(folder: Path, /, *arguments: Given.args, **options: Given.kwargs) -> None:
        check_folder(folder, ELSEWHERE)
        with folder_lock(folder, f"wait until it ends, or {ELSEWHERE}"):
            function(folder, *arguments, **options)

    return alone


@alone_in_folder
def train(
    folder: Path,
    curriculum: Curriculum,
    *,
    device: torch.device,
    seconds: float = float("inf"),
    before: Task | None = None,
    workers: int = 0,
    compressor: CompressorName = "aviot",
    start: Path | None = None,
    compiled: bool = False,
    unexamined: bool = False,
) -> None:
    """Steps until the curriculum or the time is over or a task begins, then the state and the accuracy so far.

    A new run begins with the first step, or where the run in `start` stopped. `compiled` has torch compile the layers
    of encoder and decoder, which takes its time once. An `unexamined` piece leaves the accuracy to the next.
    """
    began = time.monotonic()
    if start is not None and not (start / STATE).is_file():
        raise ValueError(f"{start} has no {STATE}; --start names the folder of a run")
    goes_on = (folder / STATE).is_file()
    if goes_on and start is not None:
        raise ValueError(f"{folder} has a run of its own; leave --start out to go on with it, or name another folder")
    earlier = {began["compressor"] for began, _ in finished_pieces(read_rows(folder / LOG))} - {compressor}
    if goes_on and earlier:
        name = earlier.pop()
        raise ValueError(f"{folder} has learnt with {name}; go on with --compressor {name}, or name another folder")
    known = folder if start is None else start
    tokenizer = tokenizer_of(known)
    pupil = Pupil(new_model(tokenizer, curriculum.seed), tokenizer, compressor).to(device)
    if compiled:
        pupil.compile_layers()
    optimizers = optimizers_of(pupil)
    step = load_state(known, pupil, optimizers)
    compressed = curriculum.begin_of("compressed")
    if start is not None and step > compressed:
        raise ValueError(
            f"{start} is at step {step:,} and has learnt from compressed videos since step {compressed:,}; "
            "--start names a run that stopped with --before compressed"
        )
    end = curriculum.steps if before is None else curriculum.begin_of(before)
    if step >= end:
        raise ValueError(f"{known} is at step {step:,}, so none is left up to {end:,}")
    with atomic_folder(folder / KEPT) as place:
        tokenizer.save_pretrained(place)
    loader = DataLoader(
        Lessons(curriculum, tokenizer),
        batch_size=None,
        sampler=range(step, end),
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        pin_memory=device.type == "cuda",  # for its thread: lessons are there before they are asked for
    )
    log = Log(folder)
    log.write(
        {
            "began": step,
            "start": None if start is None else start.name,
            "compressor": compressor,
            "data": data_fingerprint(curriculum, tokenizer),
            "machine": machine(device),
            "versions": versions(),
            "commit": commit(),
        }
    )
    precision = partial(torch.autocast, device.type, torch.bfloat16, enabled=device.type == "cuda")
    for lesson in loader:
        log.waited()
        phase, _ = curriculum.at(step)
        if phase.task != "patches":
            pupil.keep_encoder()
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = curriculum.rate(step)
        with precision():  # for a step and no longer: it keeps cast weights until it ends
            terms, shares = pupil.terms(lesson)
        torch.stack(list(terms.values())).sum().backward()
        norm = nn.utils.clip_grad_norm_(pupil.parameters(), CLIP)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        log.add(step, phase, {**terms, **shares, "norm": norm})
        if step % REPORT == 0 and time.monotonic() - began > seconds:
            break
    save_state(folder, pupil, optimizers, step)
    log.write({"ended": step, "seconds": round(time.monotonic() - began, 1)})
    if unexamined:
        return
    with precision():
        examine(pupil.model, tokenizer, curriculum.seed, step, log, settings_after(curriculum, step, compressor))


def settings_after(curriculum: Curriculum, step: int, compressor: CompressorName) -> list[Setting]:
    """How held-out videos are compressed after a step: not at all until that is taught."""
    settings: list[Setting] = [("none", None)]
    if curriculum.at(step - 1)[0].task == "compressed":
        settings += [(compressor, ratio) for ratio in RATIOS]
        others: tuple[CompressorName, ...] = ("aviot", "segment-mean")
        settings += [(other, LOOK) for other in others if other != compressor]
    return settings


def examine(
    model: AviotForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    step: int,
    log: Log,
    settings: Sequence[Setting],
) -> None:
    """Write down how many held-out questions are answered right, by family."""
    world = World(WorldConfig(seed=seed))
    for frames in EXAMINED:
        found = accuracy(
            model, tokenizer, world, split="validation", scenes=range(SCENES), frames=frames, settings=settings
        )
        for (name, ratio), families in found.items():
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
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, to go on later")
    parser.add_argument("--before", choices=get_args(Task), help="stop where this begins")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--workers", type=int, default=8, help="processes that make lessons")
    parser.add_argument("--compressor", choices=COMPRESSORS, default="aviot")
    parser.add_argument("--start", type=Path, help="a run to begin from")
    parser.add_argument("--compiled", action="store_true", help="have torch compile the layers first")
    parser.add_argument("--unexamined", action="store_true", help="ask no held-out questions at the end of this piece")
    given = vars(parser.parse_args())
    torch.multiprocessing.set_sharing_strategy("file_system")  # tensors go by name: twice as fast as by descriptor
    try:
        train(given.pop("folder"), CURRICULUM, device=device_named(given.pop("device")), **given)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "stopped: the state before this piece is untouched, and the same command goes on from it\n")


if __name__ == "__main__":
    main()
