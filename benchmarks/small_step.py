"""Where a training step of the small model spends its time, task by task.

python benchmarks/small_step.py [--compiled] [--kernels 8]

Milliseconds on the clock (median of five, the device idle before and after), of the GPU's kernels, and the kernels that
take most. Lessons are made beforehand.
"""

import argparse
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from aviot.small.architecture import new_model
from aviot.small.curriculum import Curriculum, Phase
from aviot.small.lessons import Lessons
from aviot.small.optimizers import optimizers_of
from aviot.small.pupil import Pupil
from aviot.small.tokenizer import build_tokenizer

PHASES = (
    Phase("patches", 2, batches=((32, 8),), rates=(0.0, 0.0)),
    Phase("pictures", 2, batches=((64, 4),), rates=(0.0, 0.0)),
    Phase("whole", 2, batches=((48, 16),), rates=(0.0, 0.0)),
    Phase("whole", 2, batches=((24, 64),), rates=(0.0, 0.0)),
    Phase("compressed", 3, batches=((64, 16),), rates=(0.0, 0.0)),
    Phase("compressed", 3, batches=((16, 64),), rates=(0.0, 0.0)),
    Phase("compressed", 3, batches=((5, 224),), rates=(0.0, 0.0)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--kernels", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    tokenizer, curriculum = build_tokenizer(), Curriculum(PHASES)
    lessons, device = Lessons(curriculum, tokenizer), torch.device(given.device)
    pupil = Pupil(new_model(tokenizer, 0), tokenizer, "aviot").to(device)
    if given.compiled:
        pupil.compile_layers()
    optimizers = optimizers_of(pupil)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = 0.0

    def step(number: int) -> float:
        synchronise(device)
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            terms, _ = pupil.terms(made[number], 1000)
        torch.stack(list(terms.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(pupil.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        synchronise(device)
        return 1000 * (time.perf_counter() - start)

    made = {}
    for number in (0, 2, 4, 6, *range(8, 17)):
        phase, within = curriculum.at(number)
        made[number] = lessons[number]
        if phase.task != "patches":
            pupil.keep_encoder()
        if phase.task == "compressed" and (made[number].ratio is None) == (within > 0):
            continue
        first = step(number)
        times = [step(number) for _ in range(5)]
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            step(number)
        kernels = [k for k in seen.key_averages() if k.device_type == torch.autograd.DeviceType.CUDA]
        kernels.sort(key=lambda kernel: -kernel.self_device_time_total)
        busy = sum(kernel.self_device_time_total for kernel in kernels) / 1000
        ratio = getattr(made[number], "ratio", None)
        print(
            f"{phase.task} {phase.videos} x {phase.batches[0][1]} ratio {ratio}: first {first:.0f} ms, then "
            f"{statistics.median(times):.1f} ({max(times) - min(times):.1f}), kernels {busy:.1f} ms in "
            f"{sum(kernel.count for kernel in kernels)} launches",
            flush=True,
        )
        for kernel in kernels[: given.kernels]:
            print(f"    {kernel.self_device_time_total / 1000:7.2f} ms {kernel.count:5} {kernel.key[:90]}")


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
