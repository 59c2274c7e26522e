"""Settings of preprocessing, as the families' own classes have them and read them from a checkpoint's files."""

import json
from dataclasses import replace

import pytest
import tiny_models as tiny
import torch
from theirs import FPS, clip, loaded, metadata, pixels_of
from transformers import AutoVideoProcessor

import aviot
from aviot.backbones.huggingface.processing import Processing

OLD_QWEN = {"min_pixels": 28 * 28 * 2, "max_pixels": 28 * 28 * 6, "patch_size": 14, "merge_size": 2}
QWEN2, QWEN3 = {"video_processor_type": "Qwen2VLVideoProcessor"}, {"video_processor_type": "Qwen3VLVideoProcessor"}
SMALL = {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 8}
SMALL3 = {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 40}
SQUARE = {"size": {"height": 42, "width": 42}}
SMOL = {"video_processor_type": "SmolVLMVideoProcessor", "max_image_size": {"longest_edge": 48}}
LLAMA = {"video_processor_type": "VideoLlama3VideoProcessor"}

LAYOUTS = {
    "limits in the image processor's file": ("qwen2.5-vl", {"preprocessor_config.json": OLD_QWEN | QWEN2}),
    "limits twice, as early checkpoints have them": (
        "qwen2-vl",
        {"preprocessor_config.json": OLD_QWEN | QWEN2 | {"size": {"min_pixels": 1, "max_pixels": 2}}},
    ),
    "the video processor's file before the image processor's": (
        "qwen2.5-vl",
        {"preprocessor_config.json": OLD_QWEN, "video_preprocessor_config.json": {"size": SMALL} | QWEN2},
    ),
    "one of two limits": (
        "qwen2-vl",
        {"video_preprocessor_config.json": QWEN2 | {"size": SMALL, "max_pixels": 28 * 28 * 3}},
    ),
    "nested": (
        "qwen3-vl",
        {
            "processor_config.json": {"video_processor": QWEN3 | {"size": SMALL3}},
            "video_preprocessor_config.json": QWEN3 | {"size": SMALL, "image_mean": [0.1, 0.2, 0.3]},
            "preprocessor_config.json": {"image_mean": [0.4, 0.4, 0.4]},
        },
    ),
    "a cap on every frame of Qwen3-VL": (
        "qwen3-vl",
        {"video_preprocessor_config.json": QWEN3 | {"size": SMALL3, "cap_pixels_per_frame": True}},
    ),
    "a cap on every frame of Qwen2-VL": (
        "qwen2-vl",
        {
            "video_preprocessor_config.json": QWEN2
            | {"size": SMALL, "cap_pixels_per_frame": True, "max_video_tokens": 12}
        },
    ),
    "limits of VideoLLaMA3": ("video-llama3", {"preprocessor_config.json": OLD_QWEN | {"max_pixels": 30_000} | LLAMA}),
    "another mean": (
        "llava-onevision",
        {
            "preprocessor_config.json": {"size": {"height": 30, "width": 30}, "image_std": [0.9, 0.9, 0.9]},
            "video_preprocessor_config.json": SQUARE
            | {"video_processor_type": "LlavaOnevisionVideoProcessor", "image_mean": [0.1, 0.2, 0.3]},
        },
    ),
    "no normalisation": (
        "internvl",
        {
            "video_preprocessor_config.json": {"size": {"height": 48, "width": 48}, "do_normalize": False}
            | {"video_processor_type": "InternVLVideoProcessor", "resample": 2}
        },
    ),
    "sampling of SmolVLM2": (
        "smolvlm",
        {
            "preprocessor_config.json": SMOL
            | {"video_sampling": {"fps": 1, "max_frames": 8, "video_size": {"longest_edge": 64}}}
        },
    ),
    "size and sampling of SmolVLM2": (
        "smolvlm",
        {
            "preprocessor_config.json": SMOL
            | {
                "size": {"longest_edge": 80},
                "video_sampling": {"fps": 1, "max_frames": 8, "video_size": {"longest_edge": 64}},
            }
        },
    ),
    "a largest size of SmolVLM2": (
        "smolvlm",
        {"preprocessor_config.json": SMOL | {"size": {"longest_edge": 5000}}},
    ),
}


def test_defaults_are_the_classes_own():
    for family in tiny.FAMILIES:
        lm, _, processor = loaded(family)
        own = type(processor.video_processor)().to_dict()
        defaults = lm.backbone.defaults
        for name, value in defaults.items():
            expected = own.get(name)
            if isinstance(value, tuple):
                value, expected = list(value), list(expected)
            if name == "size" or name == "max_image_size":
                expected = {key: number for key, number in dict(expected).items() if number is not None}
            if name == "cap_pixels_per_frame":
                expected = bool(expected)  # None has meant no cap so far
            assert value == expected, (family, name)
        for name in ("patch_size", "merge_size", "temporal_patch_size", "use_token_compression", "size", "resample"):
            assert (name in defaults) == (own.get(name) is not None), (family, name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_are_read_as_the_families_read_them(layout, tmp_path):
    family, files = LAYOUTS[layout]
    lm, model, processor = loaded(family)
    processor.tokenizer.save_pretrained(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    ours = type(lm.backbone)(model, Processing.from_folder(tmp_path))
    theirs = AutoVideoProcessor.from_pretrained(tmp_path)
    for size in ((64, 98), (127, 83)):
        one = clip(1 if "largest" in layout else 5, size)
        pixels = pixels_of(aviot.VideoLM(ours, engine=lm.engine), ours.read(one, source_fps=FPS, fps=FPS))
        found = theirs([one], video_metadata=[metadata(one)], do_sample_frames=False, return_tensors="pt")
        expected = found["pixel_values" if family == "smolvlm" else "pixel_values_videos"]
        assert torch.equal(pixels, expected.reshape(pixels.shape)), size


def test_sampling_of_smolvlm(tmp_path):
    lm, model, processor = loaded("smolvlm")
    processor.tokenizer.save_pretrained(tmp_path)
    content = SMOL | {"video_sampling": {"fps": 1, "max_frames": 4, "video_size": {"longest_edge": 64}}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    backbone = type(lm.backbone)(model, Processing.from_folder(tmp_path))
    assert backbone.read(clip(6, (40, 40)), source_fps=2.0).times == (0.0, 1.0, 2.0)
    assert len(backbone.read(clip(20, (40, 40)), source_fps=2.0)) == 4


@pytest.mark.parametrize("setting", [{"do_resize": False}, {"do_center_crop": True}, {"size": {"shortest_edge": 42}}])
def test_settings_that_cannot_be_followed_are_refused(setting):
    lm, model, _ = loaded("llava-onevision")
    changed = replace(lm.backbone.processing, video={**lm.backbone.processing.video, **setting})
    with pytest.raises(ValueError, match=next(iter(setting))):
        type(lm.backbone)(model, changed)


def template(mark):
    return tiny.CHAT.replace("VIDEO", "<video>") + mark


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template.json": json.dumps({"chat_template": template("legacy")})},
        {"chat_template.jinja": template("raw")},
        {"chat_template.json": json.dumps({"chat_template": template("both")}), "chat_template.jinja": template("x")},
        {"processor_config.json": json.dumps({"chat_template": template("inside")})},
        {},
    ],
)
def test_the_processors_template_comes_before_the_tokenizers(files, tmp_path):
    """LLaVA-OneVision's tokenizer has a template for text alone."""
    lm, _, processor = loaded("llava-onevision")
    own = {} if files else {"chat_template": template("tokenizer's")}
    processor.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] = own.get("chat_template", "{{ messages[0]['content'] }}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(processor.video_processor.to_dict()))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor.image_processor.to_dict()))
    lm.backbone.model.config.save_pretrained(tmp_path)
    expected = own.get("chat_template") or type(processor).from_pretrained(tmp_path).chat_template
    assert Processing.from_folder(tmp_path).template == expected
