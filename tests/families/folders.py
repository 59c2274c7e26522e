"""Checkpoint folders of the tiny models, with the small files that a family's hub repository has."""

import json
from pathlib import Path

import tiny_models as tiny

VIDEO_SETTINGS = {
    family: settings | ({"max_frames": 32} if family.startswith("qwen") else {})
    for family, settings in tiny.VIDEO_SETTINGS.items()
}
"""What video_preprocessor_config.json says; everything else is the family's default."""


def save(family: str, folder: Path) -> Path:
    """Write model, tokenizer, chat template and preprocessing; processors of transformers would need torchvision."""
    model, tokenizer = tiny.FAMILIES[family]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "video_preprocessor_config.json").write_text(json.dumps(VIDEO_SETTINGS[family]))
    return folder
