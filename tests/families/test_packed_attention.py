"""The encoders' attention over packed sequences: one launch on a GPU, and what transformers computes."""

import pytest
import tiny_models as tiny
import torch
from loaded import clip
from transformers import AttentionInterface

from aviot.backbones.huggingface import packed_attention as packing

PACKING = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3.5", "video-llama3")


def features(backbone):
    video = backbone.read(clip(5), source_fps=2.0, fps=2.0)
    return backbone.encode([video])[0].features


@pytest.mark.parametrize("family", PACKING)
def test_by_segment_it_is_what_transformers_computes(family, monkeypatch):
    backbone = tiny.backbone(family)
    theirs = features(backbone)
    calls = []
    AttentionInterface.register(packing.NAME, lambda *a, **k: calls.append(1) or packing.packed_attention(*a, **k))
    monkeypatch.setattr(backbone.packing_encoder.config, "_attn_implementation", packing.NAME)
    assert torch.equal(features(backbone), theirs)
    assert calls


@pytest.mark.parametrize("family", PACKING)
def test_a_cpu_keeps_its_own(family):
    backbone = tiny.backbone(family)
    features(backbone)
    assert backbone.packing_encoder.config._attn_implementation == "sdpa"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("family", PACKING)
def test_on_a_gpu_it_agrees_with_segments(family, dtype):
    """In float32 to the last bit, since the kernel takes half precision only."""
    backbone = tiny.backbone(family)
    exact = features(backbone)
    backbone.model.to(device="cuda", dtype=dtype)
    backbone.__dict__.pop("device", None)
    fast = features(backbone)
    encoder = backbone.packing_encoder
    assert encoder.config._attn_implementation == packing.NAME
    encoder.config._attn_implementation = "eager"
    slow = features(backbone)

    def error(found):
        return float((found.cpu().double() - exact.double()).norm() / exact.double().norm())

    if dtype == torch.float32:
        assert error(fast) < 1e-5
    else:
        assert error(fast) < 2 * error(slow) + 1e-3


@pytest.mark.gpu
def test_the_kernel_agrees_with_a_softmax():
    """Uneven segments, in bfloat16, against float64."""
    lengths = [64, 1, 48, 64, 17]
    ends = torch.tensor([0, *lengths], device="cuda").cumsum(0)
    generator = torch.Generator("cuda").manual_seed(0)
    parts = [
        torch.randn(1, 4, sum(lengths), 72, generator=generator, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    ]
    found, _ = packing.packed_attention(
        torch.nn.Identity(), *parts, None, scaling=72**-0.5, cu_seq_lens_q=ends, max_length_q=64
    )
    assert packing._fits(parts[0], 72)
    query, key, value = (part[0].double() for part in parts)
    segment = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"), torch.tensor(lengths, device="cuda"))
    scores = (query @ key.mT * 72**-0.5).masked_fill(segment[:, None] != segment, -torch.inf)
    exact = (scores.softmax(-1) @ value).transpose(0, 1)
    assert float((found[0].double() - exact).norm() / exact.norm()) < 4e-3
