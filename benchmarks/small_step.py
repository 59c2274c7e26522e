"""Where a training step of the small model spends its time, task by task.

python benchmarks/small_step.py [--task whole --task compressed] [--compiled] [--kernels 8] [--cudnn]

Milliseconds on the clock (median of five, the device idle before and after), until the host has queued the step, of the
GPU's kernels, and the kernels that take most; then of other batches, each for the first time. Batches are made
beforehand. --cudnn leaves torch the choice of its attention, as any other program does.
"""

import argparse
import statistics
import time
from typing import get_args

import torch
from torch.nn.attention import SDPBackend
from torch.profiler import ProfilerActivity, profile

from aviot_lab.demo_model import learning
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.batches import ConversationBatch, FrameBatch, TrainingBatches
from aviot_lab.demo_model.curriculum import Curriculum, Phase, Task
from aviot_lab.demo_model.optimizers import optimizers_of
from aviot_lab.demo_model.tokenizer import build_tokenizer
from aviot_lab.demo_model.training_model import TrainingModel

BATCHES = 8  # of each kind
REPEATS = 5
KINDS: tuple[tuple[Task, tuple[int, int]], ...] = (
    ("patches", (32, 8)),
    ("pictures", (64, 4)),
    ("whole", (48, 16)),
    ("whole", (24, 64)),
    ("compressed", (64, 16)),
    ("compressed", (16, 64)),
    ("compressed", (5, 224)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=get_args(Task), help="all, if none is given")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--cudnn", action="store_true")
    parser.add_argument("--kernels", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    if given.cudnn:
        learning.ATTENTION.append(SDPBackend.CUDNN_ATTENTION)
    tokenizer, device = build_tokenizer(), torch.device(given.device)
    training_model = TrainingModel(new_model(tokenizer, 0), tokenizer, "aviot").to(device)
    if given.compiled:
        training_model.compile_layers()
    optimizers = optimizers_of(training_model)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = 0.0

    def step(batch: ConversationBatch | FrameBatch) -> tuple[float, float]:
        """Milliseconds until the step was done, and until it was queued."""
        synchronise(device)
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            losses, _ = training_model.losses(batch)
        torch.stack(list(losses.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(training_model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        queued = time.perf_counter()
        synchronise(device)
        return 1000 * (time.perf_counter() - start), 1000 * (queued - start)

    for task, batch in (kind for kind in KINDS if not given.task or kind[0] in given.task):
        phase = Phase(task, 2 * BATCHES, (batch,), rates=(0.0, 0.0))
        batches = TrainingBatches(Curriculum((phase,)), tokenizer)
        made = [batches[number] for number in range(phase.steps)]
        if task == "compressed":
            made = [batch for batch in made if batch.ratio is not None]
        if task != "patches":
            training_model.freeze_encoder()
        first, _ = step(made[0])
        times = [step(made[0]) for _ in range(REPEATS)]
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            step(made[0])
        kernels = [k for k in seen.key_averages() if k.device_type == torch.autograd.DeviceType.CUDA]
        kernels.sort(key=lambda kernel: -kernel.self_device_time_total)
        busy = sum(kernel.self_device_time_total for kernel in kernels) / 1000
        new = [step(batch)[0] for batch in made[1:BATCHES]]
        again = [step(batch)[0] for batch in made[1:BATCHES]]
        done, queued = (statistics.median(part) for part in zip(*times, strict=True))
        launches = sum(kernel.count for kernel in kernels)
        print(
            f"{task} {batch[0]} x {batch[1]}: first {first:.0f} ms, then {done:.1f}, queued after {queued:.1f}, "
            f"kernels {busy:.1f} in {launches} launches; "
            f"other batches {statistics.mean(new):.1f} the first time, {statistics.mean(again):.1f} the second",
            flush=True,
        )
        for kernel in kernels[: given.kernels]:
            print(f"    {kernel.self_device_time_total / 1000:7.2f} ms {kernel.count:5} {kernel.key[:90]}")


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
