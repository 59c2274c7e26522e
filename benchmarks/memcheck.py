"""A forward and a backward of the compressor for a checker of memory to watch.

PYTORCH_NO_CUDA_MEMORY_CACHING=1 PYTHONPATH=src:tests \\
    compute-sanitizer --tool memcheck python3 benchmarks/memcheck.py [--frames 22]

Three stages, groups of patches that differ in size, widths that no tile divides, in bfloat16 and float32, with
gradients and without. Without torch's cache every tensor is an allocation of its own, whose end the checker knows.
Triton keeps what it compiles: after a run without the checker, the one with it takes seconds.
"""

import argparse

import torch
from common import inputs, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=22)
    frames = parser.parse_args().frames
    for dtype in (torch.bfloat16, torch.float32):
        compressor = make().cuda()
        given = {name: value.cuda() for name, value in inputs(frames, seed=frames, dtype=dtype).items()}
        with torch.no_grad():
            out = compressor(**given, supports=frames // 4)
        torch.cuda.synchronize()
        print(dtype, "forward", out.path, bool(out.features.isfinite().all()), flush=True)
        given["x"].requires_grad_()
        out = compressor(**given, supports=frames // 4)
        (out.features.float().square().mean() + out.loss).backward()
        torch.cuda.synchronize()
        print(dtype, "backward", bool(given["x"].grad.isfinite().all()), flush=True)


if __name__ == "__main__":
    main()
