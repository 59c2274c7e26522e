"""Uncompressed through AVIOT equals the model on pixels, without the family's own processor.

Awkward numbers of frames, and language models that only some checkpoints of a family have.
"""

import numpy as np
import pytest
import tiny_models as tiny
import torch

import aviot
from aviot.backbones.base import CompressionRequest

GENERATED = 6


def inputs_of(backbone, frames):
    """Return our decoder inputs, and the arguments of the model's own path from pixels."""
    clip = np.random.RandomState(frames).randint(0, 256, (frames, 56, 112, 3)).astype(np.uint8)
    video = backbone.read(clip, source_fps=2.0)
    pixels = backbone.pixels([video])
    (encoded,) = backbone.encode([video], pixels)
    prompt = backbone.prompt("What happens?", video)
    made = backbone.compress([encoded], [prompt], CompressionRequest(aviot.Budget(ratio=2), "none"))
    ours = backbone.place([prompt], made)
    own = {name: ours.arguments[name] for name in ("input_ids", "attention_mask")}
    if isinstance(pixels[0], tuple):
        own |= {"pixel_values_videos": pixels[0][0], "video_grid_thw": pixels[0][1]}
        own["mm_token_type_ids"] = 2 * (own["input_ids"] == backbone.token_id).int()
        if backbone.family == "qwen2.5-vl":
            own["second_per_grid_ts"] = torch.tensor([1.0])
    else:
        own["pixel_values"] = pixels[0]
    return ours, own


def check(backbone, frames):
    ours, own = inputs_of(backbone, frames)
    expected = backbone.model.generate(
        **own, max_new_tokens=GENERATED, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    found = backbone.model.generate(
        **ours.arguments, max_new_tokens=GENERATED, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(torch.stack(found.logits), torch.stack(expected.logits), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", tiny.VARIANTS)
def test_other_language_models(family):
    backbone = tiny.backbone(family)
    check(backbone, 5)
    session = aviot.VideoLM(backbone).open(np.zeros((8, 56, 112, 3), np.uint8), source_fps=2.0)
    whole, quarter = (session.ask("What?", budget=b, method="segment-mean", max_new_tokens=2) for b in (1.001, 4))
    assert quarter.tokens_after * 4 == whole.tokens_after == quarter.tokens_before
    assert backbone.decoder.layers == 3
    assert backbone.max_length == 8192


@pytest.mark.parametrize("frames", [1, 2, 3, 9])
@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3.5"])
def test_odd_and_short_videos(family, frames):
    """The last frame is repeated where frames are merged by two; one frame alone is a pair, too."""
    backbone = tiny.backbone(family)
    check(backbone, frames)
    video = backbone.read(np.zeros((frames, 56, 112, 3), np.uint8), source_fps=2.0)
    (encoded,) = backbone.encode([video])
    assert len(encoded.times) == -(-frames // 2)
    assert encoded.times[-1] == ((frames - 1) / 2 if frames % 2 else (frames - 1.5) / 2)


@pytest.mark.parametrize("method", ["segment-mean", "low-resolution", "aviot"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_one_frame_is_answered(family, method):
    session = aviot.VideoLM(tiny.backbone(family)).open(np.zeros((1, 56, 112, 3), np.uint8), source_fps=2.0)
    answer = session.ask("What?", budget=4, method=method, max_new_tokens=2)
    assert 1 <= len(answer.compressed) <= session.encoded.features.shape[1]
