"""Items, videos and a tiny model made for the tests, and runs over them."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "video"))
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from clips import encode
from tiny import make_start

from aviot.evaluation.batching import Shard
from aviot.evaluation.config import EvaluationConfig
from aviot.evaluation.run import evaluate
from aviot.session import VideoLM

OPTIONS = ("-r", "2", "-r", "4", "--compressor", "aviot", "--compressor", "none", "--max-new-tokens", "3")
SETTINGS = ("aviot@2", "aviot@4", "none")


def write_items(path: Path, items: list[dict]) -> Path:
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
    return path


def make_set(folder: Path) -> Path:
    """A tiny model, three videos, a broken one, and twelve items: one about a missing video, one without answer."""
    make_start(folder / "model")
    for number in range(3):
        encode(folder / f"v{number}.mp4", pictures=12 + 4 * number, rate=4)
    (folder / "broken.mp4").write_bytes(b"no video" * 99)
    items: list[dict] = []
    for number in range(3):
        video = f"v{number}.mp4"
        items += [
            {"id": f"choice-{number}", "video": video, "question": "What?", "options": ["cat", "dog"], "answer": "B"},
            {"id": f"open-{number}", "video": video, "question": "Which colour?", "answer": "red"},
            {"id": f"count-{number}", "video": video, "question": "How many?", "options": [1, 2, 3], "answer": "C"},
        ]
    items.insert(4, {"id": "missing", "video": "nowhere.mp4", "question": "Who?", "answer": "nobody"})
    items.insert(2, {"id": "broken", "video": "broken.mp4", "question": "Who?", "options": ["x", "y"], "answer": "x"})
    items.append({"id": "unanswered", "video": "v0.mp4", "question": "Why?"})
    return write_items(folder / "items.jsonl", items)


@cache
def load(model: Path) -> VideoLM:
    return VideoLM.from_pretrained(model, device="cpu")


def config(made: Path, out: Path, **changes: Any) -> EvaluationConfig:
    """What `OPTIONS` says on a command line."""
    chosen = {"ratios": (2.0, 4.0), "methods": ("aviot", "none"), "max_new_tokens": 3} | changes
    places = {"items": made / "items.jsonl", "model": made / "model", "out": out}
    return EvaluationConfig(**(places | chosen))


def run(
    made: Path,
    out: Path,
    *,
    resume: bool = False,
    retry: bool = False,
    shard: Shard | None = None,
    loading=load,
    **changes: Any,
):
    configuration, device = config(made, out, **changes), torch.device("cpu")
    return evaluate(
        configuration, lambda: loading(configuration.model), device, resume=resume, retry=retry, shard=shard or Shard()
    )


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def command(made: Path, out: Path, *words: str) -> list[str]:
    return ["evaluate", str(made / "items.jsonl"), "-m", str(made / "model"), *OPTIONS, "--out", str(out), *words]
