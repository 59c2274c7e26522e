"""Read mutated copies of videos in a process of limited memory: python mutants.py FOLDER COUNT SEED.

Prints the number of files read, the number refused, the slowest read and the peak memory. Fails on a crash and on any
exception but VideoError; the last line printed names the file.
"""

import resource
import sys
import time
from pathlib import Path

import numpy as np
from memory import peak

from aviot.video import VideoError, read_video

MEMORY = 2 * 2**30
HEAD = 2048


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Change bytes anywhere or in the header, truncate, blank, repeat or drop a range, or end in noise."""
    changed = np.frombuffer(data, np.uint8).copy()
    kind = rng.integers(7)
    a, b = sorted(rng.integers(0, len(changed), 2).tolist())
    if kind in (0, 1):
        places = rng.integers(0, len(changed) if kind else min(HEAD, len(changed)), rng.integers(1, 20))
        changed[places] = rng.integers(0, 256, len(places))
    elif kind == 2:
        changed = changed[: max(1, b)]
    elif kind == 3:
        changed[a:b] = 0
    elif kind == 4:
        changed = np.concatenate((changed[:b], changed[a:]))
    elif kind == 5:
        changed = np.concatenate((changed[:a], changed[b:]))
    else:
        changed[b:] = rng.integers(0, 256, len(changed) - b)
    return changed.tobytes()


def main(folder: Path, count: int, seed: int) -> None:
    """Mutate and read `count` files."""
    sources = sorted(path for path in folder.iterdir() if path.stem == "source")
    rng = np.random.default_rng(seed)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    read, refused, slowest = 0, 0, (0.0, "")
    for i in range(count):
        source = sources[i % len(sources)]
        path = folder / f"mutant{i}{source.suffix}"
        path.write_bytes(mutate(source.read_bytes(), rng))
        print(path, flush=True)
        begin = time.monotonic()
        try:
            video = read_video(path, fps=5, max_frames=16)
            assert len(video) == len(video.frames) == len(video.times) >= 1
            assert list(video.times) == sorted(video.times)
            assert video.duration > 0
            assert video.damage is None or str(video.damage)
            read += 1
        except VideoError:
            refused += 1
        slowest = max(slowest, (time.monotonic() - begin, path.name))
        path.unlink()
    held = peak()
    print(f"read {read}, refused {refused}, slowest {slowest[0]:.2f} s ({slowest[1]}), peak {held / 2**20:.0f} MiB")
    assert held < MEMORY


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
