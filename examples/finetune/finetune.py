"""Fine-tune the bundled demo model from data to checkpoint to evaluation: python examples/finetune/finetune.py

Generates videos of the synthetic world with questions about colours, trains the bundled model to answer them in
complete sentences ("The star is red." instead of "red"), and evaluates it before and after on held-out scenes.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aviot.bundled import embedded_model
from aviot.cli import app
from aviot_lab.world import Split, World, WorldConfig, save

CONFIG = Path(__file__).with_name("config.yaml")
WORLD = WorldConfig(families=("colour",), frames=(16,))
FRAMES = 8  # sampled of the 16; config.yaml has the same number
QUESTION = "What colour is the {}? Reply with a sentence."
ANSWER = "The {} is {}."


def generate(split: Split, count: int, videos: Path) -> Iterator[tuple[str, str, str]]:
    """Write the first scenes of a split as MP4 files; yield each one's path, a question about it and the answer."""
    world = World(WORLD)
    videos.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        scene = world.scene(split, number)
        path = videos / f"{split}-{number}.mp4"
        save(scene, path)
        plot = scene.plots[0]
        shape = dict(plot.slots)["shape"]
        yield f"{videos.name}/{path.name}", QUESTION.format(shape), ANSWER.format(shape, plot.answer)


def record(video: str, question: str, answer: str) -> dict[str, Any]:
    """Return a training record in the format of LLaMA-Factory and ms-swift; docs/data.md lists the others."""
    messages = [{"role": "user", "content": f"<video>{question}"}, {"role": "assistant", "content": answer}]
    return {"messages": messages, "videos": [video]}


def item(video: str, question: str, answer: str) -> dict[str, Any]:
    """Return an item of `aviot evaluate`."""
    return {"video": video, "question": question, "answer": answer}


def write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_data(folder: Path, scenes: int) -> None:
    """Generate a training set, and a quarter as many scenes each for the held-out loss and the evaluation."""
    videos, few = folder / "videos", max(2, scenes // 4)
    write_lines(folder / "train.jsonl", (record(*row) for row in generate("train", scenes, videos)))
    write_lines(folder / "held_out.jsonl", (record(*row) for row in generate("validation", few, videos)))
    write_lines(folder / "items.jsonl", (item(*row) for row in generate("test", few, videos)))


def aviot(*words: str) -> None:
    """Run an `aviot` command in this process."""
    print(f"\n$ aviot {shlex.join(words)}", flush=True)
    code = app(list(words), standalone_mode=False)
    if code:
        sys.exit(code)


def train(folder: Path, model: Path, steps: int) -> Path:
    """Train the model on the set; return the last checkpoint."""
    run = folder / "run"
    changes = {
        "model": model,
        "output": run,
        "cache.folder": folder / "features",
        "data.records": folder / "train.jsonl",
        "held_out.records": folder / "held_out.jsonl",
        "optimization.steps": steps,
    }
    aviot("train", "--config", str(CONFIG), *(word for key in changes for word in ("--set", f"{key}={changes[key]}")))
    return run / f"checkpoint-{steps}"


def evaluate(folder: Path, model: Path, name: str) -> float:
    """Evaluate a model on the held-out questions; return the share of correct answers."""
    out = folder / name
    options = ["--ratio", "4", "--max-frames", str(FRAMES), "--open-instruction", ""]
    aviot("evaluate", str(folder / "items.jsonl"), "--model", str(model), *options, "--output", str(out))
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    return sum(bool(row["correct"]) for row in rows) / len(rows)


def main(words: list[str]) -> tuple[float, float]:
    """Run the example; return the share of correct answers before and after training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("runs/finetune"), help="output folder; default: runs/finetune"
    )
    parser.add_argument("--scenes", type=int, default=32, help="number of training videos; default: 32")
    parser.add_argument("--steps", type=int, default=24, help="number of optimizer steps of 4 examples; default: 24")
    chosen = parser.parse_args(words)
    if (chosen.folder / "before").exists():
        parser.error(f"{chosen.folder} holds a run of this example; remove it, or name another folder")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    write_data(chosen.folder, chosen.scenes)
    before = evaluate(chosen.folder, embedded_model(), "before")
    after = evaluate(chosen.folder, train(chosen.folder, embedded_model(), chosen.steps), "after")
    print(f"\ncorrect answers on held-out scenes: {before:.0%} before, {after:.0%} after")
    return before, after


if __name__ == "__main__":
    main(sys.argv[1:])
