"""Families and methods on a GPU: features, tokens and provenance of the CPU; no answer from NaN or infinity."""

from dataclasses import replace

import pytest
import torch
from loaded import FAMILIES, LLAVA_VIDEO, clip, lm_of

from aviot import Budget, VideoLM, VideoSession, methods
from aviot.backbones.attention import EXTRAS
from aviot.engine.base import Stopwatch
from aviot.methods.peers.fastv import FastV
from aviot.session import CompressionRequest

pytestmark = pytest.mark.gpu
NAMES = [name for name in methods.names() if name != "none"]
BEFORE = [name for name in NAMES if methods.get(name).inside is None or methods.get(name).point == "tokens"]


def method_of(name):
    return FastV(layer=1) if name == "fastv" else methods.get(name)


@pytest.fixture(scope="module", params=FAMILIES)
def sessions(request):
    """Sessions of one family's tiny model in float32 on the CPU and on the GPU."""
    here = lm_of(request.param)
    frames = clip(8)
    on_cpu = here.open(frames, source_fps=2.0, fps=2.0)
    if request.param == LLAVA_VIDEO:
        there = VideoLM.from_pretrained(here.backbone.name_or_path, device="cuda")
    else:
        from tiny_models import backbone

        moved = backbone(request.param)
        moved.model.to("cuda")
        moved.__dict__.pop("device", None)
        there = VideoLM(moved)
    return on_cpu, there.open(frames, source_fps=2.0, fps=2.0)


def compressed(session, name):
    prompt = session.prompt("What happens here?")
    (video,) = session.backbone.compress(
        [session.encoded], [prompt], CompressionRequest(Budget(keep=0.5), method_of(name))
    )
    return video


def distance(found, expected):
    """Return the relative difference of two tensors on different devices."""
    return float((found.cpu() - expected).norm() / expected.norm())


def with_features_of(session, encoded):
    """Return a session with the features, and all that was computed of them so far, of another device."""
    device = session.encoded.features.device
    extras, cache = ({key: value.to(device) for key, value in some.items()} for some in (encoded.extras, encoded.cache))
    moved = replace(encoded, features=encoded.features.to(device), extras=extras, cache=cache)
    return VideoSession(session.lm, moved, Stopwatch(device))


def test_features_and_attention_are_those_of_the_cpu(sessions):
    on_cpu, on_gpu = sessions
    assert distance(on_gpu.encoded.features, on_cpu.encoded.features) < 1e-5
    for name, expected in on_cpu.encoded.extras.items():
        assert distance(on_gpu.encoded.extras[name], expected) < 1e-5
    found, expected = (one.backbone.attention(one.encoded, EXTRAS) for one in (on_gpu, on_cpu))
    assert set(found) == set(expected)
    for name in expected:
        assert distance(found[name], expected[name]) < 1e-5


@pytest.mark.parametrize("name", ["uniform", "evs", "aot"])
def test_what_methods_mix_is_that_of_the_cpu(sessions, name):
    """Features, projected tokens, and those before pooling; relative to how far they lie from their mean."""
    found, expected = (one.sources(method_of(name)).cpu().flatten(0, 1) for one in reversed(sessions))
    assert distance(found - expected.mean(0), expected - expected.mean(0)) < 1e-5


@pytest.mark.parametrize("name", BEFORE)
def test_tokens_are_those_of_the_cpu(sessions, name):
    """From the same features: methods that pick by near ties would pick others where an encoder's last digit differs.

    Sums in another order may still turn a near tie around, so a few tokens may differ; provenance rebuilds all.
    """
    on_cpu, on_gpu = sessions
    try:
        expected = compressed(on_cpu, name)
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)[:20]):
            compressed(on_gpu, name)
        return
    on_gpu = with_features_of(on_gpu, on_cpu.encoded)
    found = compressed(on_gpu, name)
    assert found.tokens.shape == expected.tokens.shape
    sources = on_gpu.sources(method_of(name)).flatten(0, 1)
    rebuilt = found.made.mixture.rebuild(sources).to(found.made.tokens.dtype)
    assert float((rebuilt - found.made.tokens).norm() / found.made.tokens.norm()) < 1e-5
    same = torch.isclose(found.tokens.cpu(), expected.tokens, rtol=1e-3, atol=1e-4).all(1).float().mean()
    assert same > 0.9


def spoilt(tokens, bad):
    """Return tokens per frame with one bad number."""
    tokens = tokens.clone()
    tokens.flatten(0, 1)[7, 3] = bad
    return tokens


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", [*NAMES, "none"])
def test_no_answer_from_features_that_are_not_finite(sessions, name, bad):
    """Eager and, from the third on, replayed where the backbone replays; sound videos between them are answered."""
    _, session = sessions
    how = {"budget": Budget(keep=0.5), "method": method_of(name), "max_new_tokens": 2}
    try:
        first = session.ask("What is it?", **how).text
    except ValueError as error:
        assert "not finite" not in str(error)  # noqa: PT017 - the family cannot serve the method
        return
    encoded = session.encoded
    unpooled = {name: spoilt(encoded.cache[name], bad) for name in ("unpooled",) if name in encoded.cache}
    encoded = replace(encoded, features=spoilt(encoded.features, bad), cache=unpooled)
    other = VideoSession(session.lm, encoded, Stopwatch(encoded.features.device))
    for _ in range(3):
        with pytest.raises(ValueError, match="not finite"):
            other.ask("What is it?", **how)
        assert session.ask("What is it?", **how).text == first
