"""Attention maps against the weights that the encoder itself computes, put in order by the families' own functions."""

import threading
from contextlib import contextmanager

import pytest
import torch
from loaded import FAMILIES, LLAVA_VIDEO, lm_of, session_of
from transformers import AttentionInterface
from transformers.vision_utils import get_vision_window_index

from aviot.backbones import attention
from aviot.methods import Compressed, TokenMethod

NAMES = ("attention", "attention_keys", "attention_shallow", "attention_deep")
taken = []


def taking(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Attend as eager attention does, and keep the weights."""
    weights = torch.softmax(query.double() @ key.double().mT * scaling, -1)
    taken.append((module, weights))
    return (weights.to(value) @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("taking", taking)


class Wants(TokenMethod):
    name = "wants"
    needs = frozenset(NAMES)

    def compress(self, video, *, question, budget):
        return Compressed.kept(video, torch.arange(video.limit(budget)))


def encoder(backbone):
    model = backbone.model.model
    names = ("visual", "vision_tower", "vision_model")
    return next(getattr(model, name) for name in names if hasattr(model, name))


@contextmanager
def weights_taken(backbone):
    configs = {id(m.config): m.config for m in encoder(backbone).modules() if hasattr(m, "config")}.values()
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = "taking"
    taken.clear()
    yield
    for config, name in zip(configs, before, strict=True):
        config._attn_implementation = name


def own_weights(family):
    """Return each layer's attention received per patch, in the encoder's order: [n], a sum over queries."""
    session = session_of(family)
    with weights_taken(session.backbone), torch.inference_mode():
        (again,) = session.backbone.encode([session.video])
    torch.testing.assert_close(again.features, session.encoded.features, atol=1e-4, rtol=1e-4)
    layers = {}
    for module, weights in taken:  # [batch,heads,L,L]: one call per segment, or a batch of frames
        layers.setdefault(module, []).append(weights.sum(2).mean(1).flatten())
    return [torch.cat(parts) for parts in layers.values()]


def in_order(family, values):
    """Return values of patches [n] on the grid of tokens [T,P] by the family's own functions."""
    session = session_of(family)
    backbone, frames, grid = session.backbone, len(session.encoded.times), session.encoded.grid
    model = backbone.model.model
    if family.startswith("qwen"):
        merged = values.view(-1, 4).mean(1)
        if family == "qwen2.5-vl":
            thw = torch.tensor([[frames, grid[0] * 2, grid[1] * 2]])
            vision = backbone.model.config.vision_config
            order, _ = get_vision_window_index(
                thw, spatial_merge_size=2, window_size=vision.window_size, patch_size=vision.patch_size, kwargs={}
            )
            merged = merged[order.argsort()]
        return merged.view(frames, -1)
    if family == "video-llama3":
        thw = torch.tensor([[frames, grid[0] * 2, grid[1] * 2]])
        return model.vision_model.pixel_unshuffle(values[:, None], thw, torch.tensor([2])).view(frames, -1)
    if family == "internvl":
        patches = values.view(frames, -1)[:, 1:].unflatten(1, (6, 6))[..., None]
        return model.pixel_shuffle(patches, scale_factor=0.5).mean(-1).flatten(1)
    if family == "smolvlm":
        return model.connector.pixel_shuffle(values.view(frames, -1, 1), 2).mean(-1)
    return values.view(frames, -1)


def pooled(family, values):
    """Return values of tokens [T,P] pooled as the family pools them."""
    model = lm_of(family).backbone.model.model
    if family == "llava-onevision":
        return model.apply_pooling(values[..., None])[..., 0]
    if family == LLAVA_VIDEO:
        grid, small = model.connector.grid, model.connector.pooled
        image = values.unflatten(1, grid)[:, None]
        return torch.nn.functional.interpolate(image, small, mode="bilinear").flatten(1)
    return values


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_are_those_of_the_encoder(family):
    session, expected = session_of(family), own_weights(family)
    extras = session.backbone.features(session.encoded, Wants(), conditioned=False).extras
    depth, frames = len(expected), len(session.encoded.times)
    last, shallow, deep = expected[-1], expected[round(depth / 5)], expected[max(depth - 2, 0)]
    attended = len(last) // frames
    found = pooled(family, in_order(family, last / attended))
    torch.testing.assert_close(extras["attention"].double(), found.double(), atol=1e-6, rtol=1e-5)
    for name, layer in (("attention_shallow", shallow), ("attention_deep", deep)):
        torch.testing.assert_close(extras[name].double(), in_order(family, layer).double(), atol=1e-5, rtol=1e-5)
    if family != "internvl":  # its class token receives some
        patches = in_order(family, torch.ones_like(last)).shape[1]
        torch.testing.assert_close(extras["attention_deep"].mean(1) * patches, torch.full((frames,), float(patches)))


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_are_those_of_the_last_layer(family):
    session = session_of(family)
    backbone = session.backbone
    module = attention.attention_modules(encoder(backbone))[-1]
    inputs = []
    handle = module.register_forward_hook(
        lambda m, args, kwargs, out: inputs.append(kwargs.get("hidden_states", args[0] if args else None)),
        with_kwargs=True,
    )
    with torch.inference_mode():
        backbone.encode([session.video])
        handle.remove()
        hidden = torch.cat(inputs).flatten(0, -2)
        width = hidden.shape[-1]
        key = module.qkv(hidden)[:, width : 2 * width] if hasattr(module, "qkv") else module.k_proj(hidden)
        mean = key.unflatten(-1, (module.num_heads, -1)).mean(1)
        expected = torch.stack([pooled(family, in_order(family, part)) for part in mean.unbind(1)], -1)
        found = backbone.features(session.encoded, Wants(), conditioned=False).extras["attention_keys"]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scores", [1, 2**26])
def test_segments_of_any_lengths_and_memory(monkeypatch, scores):
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", scores)
    g = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 5, 0, 3, 1])
    query, key = (torch.randn(12, 2, 4, generator=g) for _ in range(2))
    expected, start = [], 0
    for length in lengths.tolist():
        for token in range(start, start + length):
            total = 0.0
            for head in range(2):
                for asking in range(start, start + length):
                    row = torch.stack([query[asking, head] @ key[j, head] / 2 for j in range(start, start + length)])
                    total += torch.softmax(row, 0)[token - start] / 2
            expected.append(total)
        start += length
    torch.testing.assert_close(attention.received(query, key, lengths), torch.stack(expected))


def test_the_encoder_runs_once_more_for_methods_that_need_it_alone(monkeypatch):
    session = lm_of("qwen2-vl").open(session_of("qwen2-vl").video)
    runs = []
    encode = session.backbone.encode_one
    monkeypatch.setattr(session.backbone, "encode_one", lambda *some: runs.append(1) or encode(*some))
    session.compress("Why?", budget=4, method="low-resolution")
    assert not runs
    for _ in range(2):
        session.compress("Why?", budget=4, method=Wants())
    assert len(runs) == 1


def test_what_another_thread_encodes_is_not_recorded():
    """As in a server, where one thread encodes a video while another one's attention is computed."""
    session, other = session_of(LLAVA_VIDEO), session_of(LLAVA_VIDEO, frames=4)
    backbone = session.backbone
    modules = attention.attention_modules(encoder(backbone))[-1:]

    def run():
        thread = threading.Thread(target=backbone.encode, args=([other.video],))
        thread.start()
        thread.join()
        backbone.encode([session.video])

    found, expected = (
        attention.recorded(modules, work, keys=True) for work in (run, lambda: backbone.encode([session.video]))
    )
    for module in modules:
        assert torch.equal(found[module].received, expected[module].received)
        assert torch.equal(found[module].keys, expected[module].keys)


@pytest.mark.parametrize(("layer", "last"), [(-1, 5), (-2, 4), (3, 2), ([-3, -1], 5), (6, 5)])
def test_layers_in_use_end_with_the_one_that_is_taken(layer, last):
    assert attention.in_use(range(6), layer)[-1] == last


def test_shallow_and_deep_layers_are_those_of_siglip_in_aot():
    described = attention.EncoderAttention(range(26), lambda: None, 1, lambda values: values, torch.eye(1)[None])
    assert described.layers == {
        "attention": 25,
        "attention_keys": 25,
        "attention_shallow": 5,
        "attention_deep": 24,
    }
