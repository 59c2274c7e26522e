"""Checkpoint folders of the tiny models, with the small files that a family's hub repository has."""

import json
from pathlib import Path

import tiny

_QWEN2 = {"size": tiny.SIZE, "max_frames": 32}
_QWEN3 = {"size": {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 40}, "max_frames": 32}
VIDEO_SETTINGS = {
    "qwen2-vl": _QWEN2,
    "qwen2.5-vl": _QWEN2,
    "qwen3-vl": _QWEN3,
    "qwen3-vl-moe": _QWEN3,
    "qwen3.5": _QWEN3,
    "llava-onevision": {"size": {"height": 42, "width": 42}},
    "internvl": {"size": {"height": 48, "width": 48}},
    "video-llama3": {"size": {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 60}},
    "smolvlm": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}},
}
"""What video_preprocessor_config.json says; everything else is the family's default."""


def save(family: str, folder: Path) -> Path:
    """Write model, tokenizer, chat template and preprocessing; processors of transformers would need torchvision."""
    model, tokenizer = tiny.FAMILIES[family]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "video_preprocessor_config.json").write_text(json.dumps(VIDEO_SETTINGS[family]))
    return folder
