"""`aviot answer` and the compressor on a CPU, of another tree and of this one, in turns. Prints one line of JSON.

git worktree add ../old 38aeca9
python benchmarks/old_and_new.py ../old [--threads 2] [--rounds 3] [--video VIDEO] [--only compressor]

Each round runs the old tree and then this one in fresh processes. On shared machines only the ratios mean anything, and
CPU time (user and system) more than the clock's. Without a video, one of 60 seconds is made: 1280x720, 30 frames per
second, H.264 with a keyframe every 250 frames, a textured background that moves under five moving squares, with noise.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, RATE, SECONDS, SQUARE = 1280, 720, 30, 60, 160
COMPRESSOR = """
import sys, time, torch
from aviot import Compressor, CompressorConfig
torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
config = CompressorConfig()
compressor = Compressor(config).eval()
x, question = torch.randn(1, 64, config.patches, config.dim), torch.randn(1, config.dim)
relevance = torch.rand(1, 64)
with torch.no_grad():
    for repeat in range(6):
        start, cpu = time.perf_counter(), time.process_time()
        compressor(x, question=question, relevance=relevance, ratio=4.0)
        if repeat:
            print(time.perf_counter() - start, time.process_time() - cpu)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="checkout of the tree to compare with")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--video", type=Path)
    parser.add_argument("--only", choices=("answer", "compressor"))
    given = parser.parse_args()
    trees = {"old": given.old.resolve(), "new": HERE}
    with tempfile.TemporaryDirectory() as folder:
        video = given.video or make_video(Path(folder) / "video.mp4")
        runs: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for _ in range(given.rounds):
            for name, tree in trees.items():
                if given.only != "compressor":
                    runs.setdefault("answer", {}).setdefault(name, []).append(answer(tree, video, given.threads))
                if given.only != "answer":
                    runs.setdefault("compressor", {}).setdefault(name, []).extend(compress(tree, given.threads))
    print(json.dumps({"threads": given.threads, "load": os.getloadavg()[0]} | {k: compare(v) for k, v in runs.items()}))


def compare(runs: dict[str, list[tuple[float, float]]]) -> dict[str, object]:
    """Return medians of seconds on the clock and of CPU, and the ratios of the new tree to the old one."""
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in runs.items()}
    ratios = [round(new / old, 3) for new, old in zip(medians["new"], medians["old"], strict=True)]
    rounded = {name: [round(value, 3) for value in values] for name, values in medians.items()}
    return rounded | {"ratio of clock and CPU": ratios, "runs": {name: len(rows) for name, rows in runs.items()}}


def run(tree: Path, threads: int, *command: str) -> tuple[float, float, str]:
    """Run Python on a tree; return seconds on the clock and of CPU, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(threads)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=True)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def answer(tree: Path, video: Path, threads: int) -> tuple[float, float]:
    question = ("-q", "What is seen?", "--device", "cpu")
    clock, cpu, _ = run(tree, threads, "-m", "aviot", "answer", str(video), *question)
    return clock, cpu


def compress(tree: Path, threads: int) -> list[tuple[float, float]]:
    lines = run(tree, threads, "-c", COMPRESSOR, str(threads))[2].splitlines()
    return [(float(clock), float(cpu)) for clock, cpu in map(str.split, lines)]


def make_video(path: Path) -> Path:
    import av
    from PIL import Image

    random = np.random.default_rng(0)

    def texture(height: int, width: int, grain: int) -> np.ndarray:
        small = random.integers(0, 256, (height // grain + 2, width // grain + 2, 3), dtype=np.uint8)
        return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))

    ground, square = texture(2 * HEIGHT, 2 * WIDTH, 24), texture(SQUARE, SQUARE, 6)
    noise = [random.normal(0, 4, (HEIGHT, WIDTH, 1)).astype(np.int16) for _ in range(8)]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=RATE, options={"crf": "23", "g": "250"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(SECONDS * RATE):
            top, left = int(HEIGHT / 2 * (1 + np.sin(number / 170))), int(WIDTH / 2 * (1 + np.cos(number / 130)))
            picture = ground[top : top + HEIGHT, left : left + WIDTH].astype(np.int16)
            for which in range(5):
                down = int((HEIGHT - SQUARE) / 2 * (1 + np.sin(number / (20 + 7 * which) + which)))
                right = int((WIDTH - SQUARE) / 2 * (1 + np.cos(number / (31 + 5 * which) + 2 * which)))
                picture[down : down + SQUARE, right : right + SQUARE] = square
            noisy = np.clip(picture + noise[number % 8], 0, 255).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(noisy, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


if __name__ == "__main__":
    main()
