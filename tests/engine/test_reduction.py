"""Tokens that leave inside the decoder, in every family, against its layers run by hand on what is left."""

import re
from pathlib import Path

import pytest
import torch
from by_hand import FAMILIES, NEW, ByHand, Plan, Planned, decoder_call, eager_weights, generated, opened, placed
from transformers import DynamicCache

from aviot.engine.attention_rows import attention_rows
from aviot.engine.reduction import reduced_decoder
from aviot.methods import Kept
from aviot.methods.peers.fastv import FastV

PLANS = {
    "drop before 1": (Plan([("before", 1)], merge=False), ()),
    "merge before 2": (Plan([("before", 2)], merge=True), ()),
    "merge within 0 and 1": (Plan([("within", 0), ("within", 1)], merge=True), ()),
    "merge within 0, drop within 2": (Plan([("within", 0), ("within", 2)], merge=True), ()),
    "cut after 1": (Plan([("before", 2)], merge=False, cut=True), (0, 1)),
    "cut twice": (Plan([("before", 1), ("before", 2)], merge=True, cut=True), (0, 1)),
    "merge and cut after 0": (Plan([("before", 1)], merge=True, cut=True), (0,)),
}


TWO_LAYERS = [name for name, (plan, _) in PLANS.items() if max(layer for _, layer in plan.points) < 2]


@pytest.mark.parametrize(
    ("family", "plan"),
    [(family, plan) for family in FAMILIES for plan in (TWO_LAYERS if family == "llava-video" else PLANS)],
)
@torch.inference_mode()
def test_every_token_is_that_of_the_layers_run_by_hand(family, plan):
    session = opened(family)
    model, (method, hidden_from_answer) = session.backbone.model, PLANS[plan]
    inputs, reducing = placed(session, method)
    answer, logits, _ = generated(model, inputs, reducing)
    by_hand = ByHand(model, inputs, method.started.steps, hidden_from_answer)
    expected = torch.stack([by_hand(answer[:number]) for number in range(NEW)])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)
    assert expected.argmax(1).tolist() == answer
    assert len(reducing.counts) == len(model.get_decoder().layers)
    assert reducing.record.left < reducing.counts[0] == len(by_hand.visual)


@pytest.mark.parametrize("plan", [name for name in PLANS if "cut" not in name])
@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "llava-onevision"])
@torch.inference_mode()
def test_answers_without_a_cache_are_the_same(family, plan):
    session, (method, _) = opened(family), PLANS[plan]
    inputs, reducing = placed(session, method)
    answer, logits, _ = generated(session.backbone.model, inputs, reducing)
    inputs, again = placed(session, method)
    repeated, same, _ = generated(session.backbone.model, inputs, again, use_cache=False)
    assert repeated == answer
    torch.testing.assert_close(same, logits, atol=2e-5, rtol=2e-5)
    assert again.counts == reducing.counts  # of the prefill alone


@torch.inference_mode()
def test_what_is_cut_from_caches_needs_them():
    session, (method, _) = opened("internvl"), PLANS["cut after 1"]
    with pytest.raises(ValueError, match="'plan' needs the decoder's cache for this prompt; generate with a cache"):
        generated(session.backbone.model, *placed(session, method), use_cache=False)


@pytest.mark.parametrize(
    ("plan", "reads"), [("drop before 1", [0]), ("cut after 1", []), ("merge within 0 and 1", [0, 1])]
)
@torch.inference_mode()
def test_caches_hold_what_their_layers_read(plan, reads):
    session, (method, _) = opened("internvl"), PLANS[plan]
    inputs, reducing = placed(session, method)
    _, _, cache = generated(session.backbone.model, inputs, reducing)
    text = inputs.length - reducing.counts[0] + NEW - 1
    lengths = [layer.keys.shape[-2] - text for layer in cache.layers]
    assert lengths == ([reducing.record.left] * 3 if plan.startswith("cut") else reducing.counts)
    assert [number for number, length in enumerate(lengths) if length > reducing.record.left] == reads


@pytest.mark.parametrize("kernels", ["sdpa", "eager"])
@pytest.mark.parametrize("plan", ["merge within 0 and 1", "cut after 1"])
@torch.inference_mode()
def test_attention_kernels_agree(kernels, plan):
    """Eager attention is given whole masks, which must be shortened."""
    session, (method, hidden_from_answer) = opened("qwen2.5-vl"), PLANS[plan]
    model = session.backbone.model
    config, before = model.get_decoder().config, model.get_decoder().config._attn_implementation
    inputs, reducing = placed(session, method)
    config._attn_implementation = kernels
    try:
        answer, logits, _ = generated(model, inputs, reducing)
    finally:
        config._attn_implementation = before
    by_hand = ByHand(model, inputs, method.started.steps, hidden_from_answer)
    expected = torch.stack([by_hand(answer[:number]) for number in range(NEW)])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_attention_rows_are_the_layers_own(family, queries):
    """Against transformers' eager attention, which returns its weights."""
    session = opened(family)
    model = session.backbone.model
    inputs, _ = placed(session, PLANS["drop before 1"][0])
    decoder, number = model.get_decoder(), 1
    layer, call = decoder.layers[number], decoder_call(model, inputs.arguments)
    embeds, positions = call["inputs_embeds"], call.get("position_ids")
    positions = torch.arange(inputs.length)[None] if positions is None else positions
    rotary = decoder.rotary_emb(embeds, positions[1:] if positions.shape[0] == 4 else positions)
    normed = layer.input_layernorm(embeds)
    weights = eager_weights(decoder, layer, normed, rotary)
    found = attention_rows(layer.self_attn, normed, rotary, queries)
    torch.testing.assert_close(found, weights[:, -queries:], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (Kept(torch.tensor([2, 1])), "must keep ascending indices below"),
        (Kept(torch.tensor([], dtype=torch.long)), "must keep 1 to"),
        (Kept(torch.tensor([0, 10**6])), "must keep ascending indices below"),
        (Kept(torch.tensor([0.5])), "must keep 1 to"),
        (Kept(torch.tensor([0]), torch.ones(45).long(), torch.ones(45)), "must merge tokens into those 1 that stay"),
        (Kept(torch.tensor([0]), into=torch.tensor([0])), "must give a place and a weight for each of"),
        (Kept(torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0])), "must give a place and a weight for each of"),
    ],
)
def test_steps_that_are_none_are_refused(kept, sentence):
    class Wrong(Plan):
        def start(self, entering):
            return Planned({("before", 1): kept})

    with pytest.raises(ValueError, match=sentence):
        opened("internvl").ask("What?", budget=2, method=Wrong([], merge=False), max_new_tokens=2)


def test_the_example_of_the_documentation_leaves_a_quarter():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    names = {"torch": torch}
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "InsideMethod" in block]
    exec(compile(block, "docs/methods.md", "exec"), names)
    session = opened("qwen2.5-vl")
    inputs, reducing = placed(session, names["Pairs"]())
    with torch.inference_mode():
        generated(session.backbone.model, inputs, reducing)
    before = reducing.counts[0]
    assert reducing.counts == [before, -(-before // 2), -(-before // 4)]
    weights = reducing.record.weights
    assert weights[0] == 0.25
    sums = torch.bincount(reducing.record.place, weights).float()
    torch.testing.assert_close(sums, torch.ones(reducing.record.left))


@torch.inference_mode()
def test_flash_attention_is_given_no_gaps_between_positions():
    """It would take them for borders of packed sequences; rotary embeddings are computed before the layers."""
    session, seen = opened("internvl"), {}
    inputs, reducing = placed(session, PLANS["drop before 1"][0])
    layers = session.backbone.model.get_decoder().layers
    hooks = [
        layer.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs, n=number: seen.update({n: kwargs["position_ids"]}), with_kwargs=True
        )
        for number, layer in enumerate(layers)
    ]
    try:
        with reduced_decoder(session.backbone.model, inputs, reducing):
            session.backbone.model(**inputs.arguments, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    assert seen[0].shape[-1] == inputs.length
    assert seen[1] is None
    assert seen[2] is None


@torch.inference_mode()
def test_static_caches_are_refused():
    session = opened("internvl")
    with pytest.raises(ValueError, match="which a static cache cannot hold; generate with a DynamicCache"):
        generated(session.backbone.model, *placed(session, FastV()), cache_implementation="static")


@torch.inference_mode()
def test_chunked_prefill_is_refused():
    session, (method, _) = opened("internvl"), PLANS["drop before 1"]
    inputs, reducing = placed(session, method)
    with (
        reduced_decoder(session.backbone.model, inputs, reducing),
        pytest.raises(ValueError, match=r"in one prefill of .* got a pass over 5"),
    ):
        session.backbone.model(inputs_embeds=torch.zeros(1, 5, 32), past_key_values=DynamicCache())
