"""Compiled encoders: the tokens of eager ones, for several sizes, and attention that methods still read."""

import pytest
import tiny_models as tiny
from loaded import clip

from aviot import methods
from aviot.backbones.huggingface.compiled import compile_layers

DEVICES = [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]


def encoded(backbone, frames, size=(64, 98)):
    (found,) = backbone.encode([backbone.read(clip(frames, size), source_fps=2.0, fps=2.0)])
    return found


def error(found, exact):
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl"])
def test_compiled_layers_give_the_same_tokens_and_attention(family, device):
    backbone = tiny.backbone(family)
    backbone.model.to(device)
    backbone.__dict__.pop("device", None)
    sizes = [(4, (64, 98)), (6, (98, 64)), (5, (140, 98))]
    eager = [encoded(backbone, *size) for size in sizes]
    method = methods.get("visionzip")
    seen = [backbone.features(one, method, conditioned=False).extras for one in eager]
    names = list(backbone.model.state_dict())
    if device == "cpu":
        assert not backbone.compile_encoder()  # left as it is there
        compile_layers(backbone.packing_encoder)
        backbone.compiled = True
    else:
        assert backbone.compile_encoder()
    assert list(backbone.model.state_dict()) == names
    for size, exact, extras in zip(sizes, eager, seen, strict=True):
        found = encoded(backbone, *size)
        assert error(found.features, exact.features) < 1e-5
        again = backbone.features(found, method, conditioned=False).extras
        assert error(again["attention"], extras["attention"]) < 1e-5


def test_other_encoders_are_left_as_they_are():
    backbone = tiny.backbone("llava-onevision")
    assert not backbone.compile_encoder()
