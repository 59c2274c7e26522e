"""`aviot batch` while its workers and the command itself are killed, compared with `aviot evaluate`.

python benchmarks/corpus_killed.py [--videos 60] [--workers 2] [--seed 0] [--most-rows 40] [--folder OUT]

Draws videos of the world with five questions each, evaluates them with the bundled demo model, then asks them as a
batch: workers are killed at random moments, the command is killed twice and resumed. Prints the numbers of kills, of
rows and of answers that differ; exits with 1 unless every question has one row with the answer of the evaluation.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from aviot.scenes.files import save
from aviot_lab.world.world import World, WorldConfig

PER_VIDEO, RATIO = 5, "4"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-rows", type=int, default=40, help="between two kills of a worker")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="aviot-corpus-"))
    folder.mkdir(parents=True, exist_ok=True)
    questions = draw(folder, given.videos, given.frames)
    aviot = [sys.executable, "-m", "aviot"]
    run = folder / "evaluated"
    if not (run / "results.jsonl").is_file():
        subprocess.run([*aviot, "evaluate", questions, "-r", RATIO, "-o", run], check=True, stdout=subprocess.DEVNULL)
    out, kills, chance = folder / "answers.jsonl", {"workers": 0, "commands": 0}, random.Random(given.seed)
    command = [*aviot, "batch", questions, "-o", out, "-r", RATIO, "--workers", str(given.workers)]
    total = given.videos * PER_VIDEO
    for stop_at in (total // 3, 2 * total // 3, None):
        resume = ["--resume"] if kills["commands"] else []
        with (folder / "batch.log").open("ab") as log:
            process = subprocess.Popen([*command, *resume], stdout=log, stderr=log)
            disturb(process, out, stop_at, kills, lambda: chance.randint(1, given.most_rows))
    compare(rows(out), rows(run / "results.jsonl"), total, kills)


def draw(folder: Path, videos: int, frames: int) -> Path:
    """Write the videos and their questions."""
    world, lines = World(WorldConfig(frames=(frames,))), []
    for index in range(videos):
        scene = world.scene("test", index)
        name = f"video-{index:04d}.mp4"
        if not (folder / name).exists():
            save(scene, folder / name)
        asked = [world.question(scene, number) for number in range(PER_VIDEO)]
        lines += [
            json.dumps({"id": f"{index}-{number}", "video": name, "question": one.text, "answer": one.answer})
            for number, one in enumerate(asked)
        ]
    path = folder / "questions.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def disturb(
    process: subprocess.Popen, out: Path, stop_at: int | None, kills: dict[str, int], rows_between: Callable[[], int]
) -> None:
    """Kill workers now and then, and the command with all its processes after so many rows."""
    next_kill = rows_between()
    while process.poll() is None:
        time.sleep(0.1)
        count = out.read_bytes().count(b"\n") if out.is_file() else 0
        below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        if stop_at is not None and count >= stop_at:
            process.send_signal(signal.SIGKILL)
            for one in below:
                one.kill()
            process.wait()
            kills["commands"] += 1
            return
        workers = [one for one in below if is_worker(one)]
        if workers and count >= next_kill:
            os.kill(random.choice(workers).pid, signal.SIGKILL)
            kills["workers"] += 1
            next_kill = count + rows_between()
    if process.returncode:
        sys.exit(f"the batch ended with {process.returncode}; see batch.log")


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is a worker that is there."""
    try:
        return process.cmdline()[:1] != [] and process.cmdline()[0].startswith("ray::MapWorker")
    except psutil.Error:
        return False


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def compare(found: list[dict], expected: list[dict], total: int, kills: dict[str, int]) -> None:
    """Print the counts, and exit with 1 if a row is missing, twice there or different."""
    theirs = {row["item"]: row["prediction"] for row in expected}
    differ = sum(row.get("answer") != theirs[row["item"]] for row in found)
    once = [row["item"] for row in found] == list(range(total))
    print(json.dumps({"rows": len(found), "each once": once, "differ": differ, "killed": kills}))
    sys.exit(differ > 0 or not once or kills["commands"] != 2 or kills["workers"] == 0)


if __name__ == "__main__":
    main()
