"""Sizes of scaled frames, and scaled frames of full size, against the families' own functions."""

from random import Random

import numpy as np
import pytest
import torch
from theirs import clip
from transformers import (
    LlavaOnevisionVideoProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMVideoProcessor,
    VideoLlama3VideoProcessor,
)
from transformers.image_utils import SizeDict

from aviot.backbones.llava_onevision import LlavaOneVision
from aviot.backbones.qwen2_vl import Qwen2VL
from aviot.backbones.qwen3_vl import Qwen3VL
from aviot.backbones.smolvlm import SmolVLM
from aviot.backbones.video_llama3 import VideoLlama3
from aviot.video import PatchScaling

CASES = 3000
SCALED = {
    Qwen2VL: Qwen2VLVideoProcessor,
    Qwen3VL: Qwen3VLVideoProcessor,
    LlavaOneVision: LlavaOnevisionVideoProcessor,
    VideoLlama3: VideoLlama3VideoProcessor,
    SmolVLM: SmolVLMVideoProcessor,
}


def sizes(limit, own, factor, seed):
    """Compare sizes of frames drawn at random; `own` returns the size by a family's function."""
    random, seen = Random(seed), set()
    for _ in range(CASES):
        height, width, frames = random.randint(1, 3000), random.randint(1, 3000), random.randint(2, 400)
        if max(height, width) > 190 * min(height, width):
            continue
        least, tokens = random.randint(1, 300) * factor**2, random.randint(1, 100_000)
        most = least + random.randint(1, 40_000) * factor**2
        scaling = PatchScaling(
            factor=factor, least=least, most=most, limit=limit, most_tokens=tokens, temporal=2, frames=frames
        )
        expected = own(frames, height, width, least, most, tokens)
        assert scaling.sizes(height, width) == (expected,), (height, width, scaling)
        seen.add((expected[0] > height, expected[0] < height))
    assert len(seen) > 1  # some grow, some shrink


class _Size(Exception):
    """What a processor would have scaled to."""


@pytest.fixture
def own_size(monkeypatch):
    """Return the size that a video processor scales frames to, without scaling them."""

    def stop(self, image, size, **_):
        raise _Size((size.height, size.width))

    def of(make, factor, frames, height, width, least, most, tokens, capped):
        processor = make(max_video_tokens=tokens) if capped else make()
        monkeypatch.setattr(make.__mro__[1], "resize", stop)
        size = SizeDict(shortest_edge=least, longest_edge=most)
        video = torch.empty(1, 1, 1, 1, 1).expand(1, frames, 3, height, width)
        with pytest.raises(_Size) as found:
            processor.resize(video, size, None, factor=factor, temporal_factor=2, cap_pixels_per_frame=capped)
        return found.value.args[0]

    return of


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize(
    ("make", "factor", "limit"), [(Qwen2VLVideoProcessor, 28, "frame"), (Qwen3VLVideoProcessor, 32, "video")]
)
def test_sizes_are_the_families(make, factor, limit, capped, own_size):
    def own(*numbers):
        return own_size(make, factor, *numbers, capped)

    sizes(limit + "-capped" * capped, own, factor, seed=factor + capped)


def test_sizes_of_videollama3_share_the_limit(own_size):
    def own(*numbers):
        return own_size(VideoLlama3VideoProcessor, 28, *numbers, False)

    sizes("shared", own, 28, seed=3)


@pytest.mark.parametrize("family", SCALED)
def test_large_frames_of_odd_sizes_are_scaled_by_default_as_the_families_do(family):
    one = clip(2, (607, 1079))
    settings = {**family.defaults}
    backbone = object.__new__(family)  # only its settings are needed
    backbone.settings = settings
    scaling = backbone.scaling().for_frames(len(one))
    ours = np.stack([scaling(frame) for frame in one])
    own = SCALED[family](do_rescale=False, do_normalize=False)
    frames = torch.from_numpy(one).permute(0, 3, 1, 2)[None]
    more = {"factor": scaling.factor, "temporal_factor": 2} if scaling.size is None else {}
    expected = own.resize(frames, SizeDict(**settings["size"]), own.resample, **more)
    assert torch.equal(torch.from_numpy(ours).permute(0, 3, 1, 2), expected[0])
