"""Checkpoints that model and processor have saved themselves answer as the two in memory do."""

import json

import pytest
import tiny_models as tiny
import torch
from theirs import FPS, clip, loaded, metadata, pixels_of, placed, processed

import aviot

NEW = 8


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_saved_processors(family, tmp_path):
    lm, model, processor = loaded(family)
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    stored = aviot.VideoLM.from_pretrained(tmp_path, device="cpu")
    one = clip(6, (64, 98))
    ours, expected = (placed(each, [one], ["What happens?"]).arguments for each in (stored, lm))
    own = processed(processor, [one], ["What happens?"])
    assert torch.equal(ours["input_ids"], expected["input_ids"])
    assert torch.equal(ours["input_ids"], own["input_ids"])
    video = stored.backbone.read(one, source_fps=FPS, fps=FPS)
    assert torch.equal(pixels_of(stored, video), pixels_of(lm, video))
    answer = stored.backbone.model.generate(**ours, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(answer, model.generate(**own, max_new_tokens=NEW, do_sample=False))


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "llava-onevision", "smolvlm"])
def test_layouts_of_older_versions(family, tmp_path):
    """One file for images and videos, with limits under their old names, and the template in a file of its own."""
    lm, model, processor = loaded(family)
    model.save_pretrained(tmp_path)
    processor.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": processor.chat_template}))
    settings = processor.video_processor.to_dict()
    settings["size"] = size = {name: value for name, value in settings["size"].items() if value is not None}
    if "shortest_edge" in size:
        settings |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
        settings["size"] = {"min_pixels": 1, "max_pixels": 2}
    if family == "smolvlm":
        settings["video_sampling"] = {"fps": FPS, "max_frames": 64, "video_size": settings.pop("size")}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    stored = aviot.VideoLM.from_pretrained(tmp_path, device="cpu")
    one = clip(6, (64, 98))
    video = stored.backbone.read(one, source_fps=FPS, fps=FPS)
    assert torch.equal(pixels_of(stored, video), pixels_of(lm, lm.backbone.read(one, source_fps=FPS, fps=FPS)))
    ours = placed(stored, [one], ["What happens?"]).arguments
    own = processed(processor, [one], ["What happens?"], about=[metadata(one)])
    answer = stored.backbone.model.generate(**ours, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(answer, model.generate(**own, max_new_tokens=NEW, do_sample=False))
