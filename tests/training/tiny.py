"""A model and a training set that train in seconds, and helpers that start runs."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import torch
import yaml
from forked import Ended, run_forked
from worker import main

from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor
from aviot.training.config import TrainingConfig

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "checkpoint"

VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 24,
    "patch_size": 4,
    "vision_use_head": False,
}
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}


def make_start(folder: Path, **text: int) -> Path:
    """Write a checkpoint with random weights and the golden tokenizer."""
    tokenizer = AviotProcessor.from_pretrained(GOLDEN).tokenizer
    torch.manual_seed(0)
    compressor = {"cost_dim": 8, "regions": ((1, 1), (2, 2), (3, 3)), "warmup_steps": 10}
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = AviotConfig(VISION, TEXT | {"vocab_size": len(tokenizer)} | text, compressor, eos_token_id=end)
    model = AviotForConditionalGeneration(config)
    with torch.no_grad():
        for weight in (*model.model.position.parameters(), model.model.compressor.region_position.weight):
            weight.normal_(std=0.1)
    model.save_pretrained(folder)
    AviotProcessor(tokenizer, image_size=VISION["image_size"]).save_pretrained(folder)
    return folder


def write_video(path: Path, pictures: list[np.ndarray], rate: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = pictures[0].shape[1], pictures[0].shape[0], "yuv420p"
        for picture in pictures:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


def make_set(folder: Path, count: int = 12) -> Path:
    """Write videos of 3 to 20 frames at 2 per second, with conversations of one or two turns of different lengths."""
    generator = np.random.default_rng(0)
    records = []
    for number in range(count):
        frames = 6 + 2 * int(generator.integers(0, 18))
        shades = generator.integers(0, 255, (frames, 1, 1, 3), dtype=np.uint8)
        write_video(folder / f"{number}.mp4", list(np.broadcast_to(shades, (frames, 32, 32, 3)).copy()))
        turns = [f"<image>\nWhat is shown in number {number}?", "It is " + "very " * (number % 7) + f"number {number}."]
        turns += ["And what else?", "Nothing else."] if number % 3 == 0 else []
        conversation = [{"from": ("human", "gpt")[i % 2], "value": text} for i, text in enumerate(turns)]
        records.append({"id": f"r{number}", "conversations": conversation, "video": f"{number}.mp4"})
    path = folder / "train.json"
    path.write_text(json.dumps(records))
    return path


def settings(folder: Path, **changes) -> dict:
    """Return the values of a configuration file for the model and the training set."""
    values = {
        "model": str(folder / "start"),
        "output": str(folder / "run"),
        "precision": "float32",
        "data": {"records": str(folder / "set" / "train.json"), "index_folder": str(folder / "index")},
        "optimization": {"steps": 4, "global_batch": 4, "micro_batch": 1, "learning_rate": 1e-3},
        "loader": {"workers": 0},
        "saving": {"every": 2},
        "logging": {"every": 1, "report_to": []},
    }
    for name, value in changes.items():
        merge = isinstance(value, dict) and isinstance(values.get(name), dict)
        values[name] = values[name] | value if merge else value
    return values


def config(folder: Path, **changes) -> TrainingConfig:
    return TrainingConfig.from_dict(settings(folder, **changes))


def lines(checkpoint: Path) -> list[dict]:
    """Return the log of a run up to a checkpoint, one entry per step."""
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [line for line in history if "loss" in line]


def start(folder: Path, name: str, *words: str, processes: int = 1, **changes) -> list[Ended]:
    """Run `worker.py` on a configuration in processes with the environment variables of torchrun."""
    return forked(write_settings(folder, name, **changes), *words, processes=processes)


def forked(path: Path, *words: str, processes: int = 1) -> list[Ended]:
    if processes == 1:
        return run_forked(main, str(path), *words)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    meeting |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    ranks = [meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    return run_forked(main, str(path), *words, environments=tuple(ranks))


def torchrun(folder: Path, name: str, *words: str, processes: int, **changes) -> Ended:
    """Run `worker.py` on a configuration with torchrun itself."""
    path = write_settings(folder, name, **changes)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [str(Path(__file__).with_name("worker.py")), str(path), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def write_settings(folder: Path, name: str, **changes) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings(folder, output=str(folder / name), **changes)))
    return path


def logged_losses(folder: Path, name: str, steps: int) -> list[float]:
    return [line["loss"] for line in lines(folder / name / f"checkpoint-{steps}")]
