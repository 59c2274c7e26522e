"""Tiny models of the families' real classes as checkpoint folders, with records about videos of colours."""

import json
import sys
from pathlib import Path

import numpy as np
from tiny import settings, write_video

from aviot.training.config import TrainingConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
import tiny_models

SETTINGS = {
    "qwen2.5-vl": {"size": {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 6}},
    "qwen3-vl": {"size": {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 120}},
    "llava-onevision": {"size": {"height": 42, "width": 42}},
    "internvl": {"size": {"height": 48, "width": 48}},
    "video-llama3": {"size": {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 40}},
    "smolvlm": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}},
}
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220), "black": (20, 20, 20)}
COMPRESSOR = {"cost_dim": 8, "regions": [[1, 1], [2, 2], [2, 3]], "warmup_steps": 4}


def save_model(family: str, folder: Path) -> Path:
    """Write a model with its tokenizer and preprocessing, as a repository of the family has them."""
    model, tokenizer = tiny_models.FAMILIES[family]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    chosen = SETTINGS.get(family) or SETTINGS["qwen2.5-vl" if "qwen2" in family else "qwen3-vl"]
    (folder / "video_preprocessor_config.json").write_text(json.dumps(chosen))
    return folder


def save_records(folder: Path) -> Path:
    """Write videos of 12 to 18 sampled frames of two shapes, a patch of colour on changing noise, and conversations."""
    generator, records = np.random.default_rng(0), []
    for number, (name, colour) in enumerate(COLOURS.items()):
        size = (56, 84) if number % 2 else (84, 60)
        coarse = generator.integers(0, 256, (24 + 4 * number, size[0] // 14, size[1] // 12, 3), dtype=np.uint8)
        frames = coarse.repeat(14, 1).repeat(12, 2)
        frames[:, :28, :36] = colour
        write_video(folder / f"{name}.mp4", list(frames))
        messages = [
            {"role": "user", "content": "<video>Which colour is it?"},
            {"role": "assistant", "content": f"It is {name}."},
        ]
        if number == 1:
            messages += [
                {"role": "user", "content": "Is it bright?"},
                {"role": "assistant", "content": "It becomes brighter."},
            ]
        record = {"id": name, "messages": messages, "videos": [f"{name}.mp4"]}
        records.append(record | ({"system": "Be brief."} if number == 2 else {}))
    path = folder / "train.json"
    path.write_text(json.dumps(records))
    return path


def values(folder: Path, family: str, **changes) -> dict:
    """Return the values of a configuration file for a family's model."""
    chosen = {
        "model": str(folder / family),
        "stage": "compressor",
        "compressor": COMPRESSOR,
        "gradient_checkpointing": False,
        "data": {"records": str(folder / "set" / "train.json"), "ratios": [1.5]},
        "optimization": {"steps": 4, "global_batch": 4, "micro_batch": 2, "learning_rate": 1e-2},
    }
    for name, value in changes.items():
        merge = isinstance(value, dict) and isinstance(chosen.get(name), dict)
        chosen[name] = chosen[name] | value if merge else value
    return settings(folder, **chosen)


def config(folder: Path, family: str, **changes) -> TrainingConfig:
    return TrainingConfig.from_dict(values(folder, family, **changes))
