"""Tokens that leave inside the decoder, in every family, against its layers run by hand on what is left."""

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from families import tiny
from transformers import DynamicCache

import aviot
from aviot.backbones.base import CompressionRequest
from aviot.backbones.huggingface.processing import Processing
from aviot.engine.attention_rows import attention_rows
from aviot.engine.base import Reducing
from aviot.engine.reduction import reduced_decoder, start
from aviot.methods import InsideMethod, Kept, Reduction, TwoStage
from aviot.methods.baselines import LowResolution, Uniform
from aviot.methods.peers.fastv import FastV
from aviot.methods.peers.framefusion import FrameFusion, Parameters
from aviot.methods.peers.inside.attention import LatePruning
from aviot.methods.peers.inside.attention import Parameters as LateParameters
from aviot.methods.peers.inside.folding import Folding
from aviot.methods.peers.inside.folding import Parameters as FoldingParameters
from aviot.methods.peers.inside.question import Parameters as QuestionParameters
from aviot.methods.peers.inside.question import QuestionPruning

SMALL = {"size": {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 12}}
LARGER = {"size": {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 40}}
SETTINGS = {
    **dict.fromkeys(("qwen2-vl", "qwen2.5-vl", "video-llama3"), SMALL),
    **dict.fromkeys(("qwen3-vl", "qwen3-vl-moe", "qwen3.5"), LARGER),
    "llava-onevision": {"size": {"height": 42, "width": 42}},
    "internvl": {"size": {"height": 48, "width": 48}},
    "smolvlm": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}},
}
GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
FAMILIES = ("llava-video", *tiny.FAMILIES)
NEW = 4  # tokens to generate


@cache
def opened(family, dtype=torch.float32):
    """Return a session of a tiny model about a video of five frames."""
    frames = np.random.default_rng(0).integers(0, 255, (5, 56, 84, 3), dtype=np.uint8)
    if family == "llava-video":
        return aviot.VideoLM.from_pretrained(GOLDEN, device="cpu").open(frames, source_fps=2)
    model, tokenizer = tiny.FAMILIES[family]()
    model = model.to(dtype)
    kind = type(aviot.VideoLM(model, tokenizer).backbone)
    lm = aviot.VideoLM(kind(model, Processing(tokenizer, None, {}, SETTINGS[family])))
    return lm.open(frames, source_fps=2, fps=2)


def placed(session, method, budget=0.5):
    prompt = session.prompt("What happens?")
    (video,) = session.backbone.compress(
        [session.encoded], [prompt], CompressionRequest(aviot.Budget(keep=budget), method)
    )
    inputs = session.backbone.place([prompt], [video])
    return inputs, Reducing(method.inside, video.made, video.order, len(video.tokens) // 2)


@dataclass
class Planned(Reduction):
    """Steps that are known beforehand."""

    steps: dict = field(default_factory=dict)

    def before(self, layer, hidden, attention):
        return self.steps.get(("before", layer))

    def within(self, layer, hidden, attention):
        return self.steps.get(("within", layer))


class Plan(InsideMethod):
    """Drop and merge random tokens at chosen points; `steps` has a share that stays for each."""

    name = "plan"

    def __init__(self, points, *, merge, cut=False):
        self.points, self.merge, self.cut = points, merge, cut

    def start(self, entering):
        generator, count, steps = torch.Generator().manual_seed(3), len(entering), {}
        for point in self.points:
            left = max(1, count // 2)
            index = torch.randperm(count, generator=generator)[:left].sort().values
            steps[point] = Kept(index, cut=self.cut)
            if self.merge:
                into = torch.randint(-1, left, (count,), generator=generator)
                into[index] = torch.arange(left)
                steps[point] = Kept(index, into, torch.rand(count, generator=generator), cut=self.cut)
            count = left
        self.started = Planned(steps)
        return self.started


def matrix(kept, count):
    """Return a step as the dense matrix that it applies to the visual tokens."""
    found = torch.zeros(len(kept.index), count)
    for token in range(count):
        if kept.into is None:
            found[:, token] = kept.index == token
        elif kept.into[token] >= 0:
            found[kept.into[token], token] = kept.weights[token]
    return found


def decoder_call(model, arguments):
    """Return what the language model is called with in a plain prefill."""
    seen = {}
    hook = model.get_decoder().register_forward_pre_hook(lambda _, args, kwargs: seen.update(kwargs), with_kwargs=True)
    try:
        model(**arguments, use_cache=False)
    finally:
        hook.remove()
    return seen


def eager_weights(decoder, layer, normed, rotary):
    """Return a layer's attention weights, [heads, L, L], which transformers' eager attention returns."""
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation = "eager"
    try:
        mask = torch.full((normed.shape[1],) * 2, -torch.inf).triu(1)[None, None]
        return layer.self_attn(normed, position_embeddings=rotary, attention_mask=mask)[1][0]
    finally:
        decoder.config._attn_implementation = before


class ByHand:
    """A language model, run layer by layer with its own parts, on tokens that leave at certain points.

    These are planned, or decided in the first call by a `reduction`, from eager attention.
    """

    def __init__(self, model, inputs, steps, hidden_from_answer=(), reduction=None):
        self.model, self.decoder, self.steps, self.reduction = model, model.get_decoder(), steps, reduction
        call = decoder_call(model, inputs.arguments)
        self.embeds, positions = call["inputs_embeds"], call.get("position_ids")
        self.positions = torch.arange(inputs.length)[None] if positions is None else positions
        self.positions = self.positions[1:] if self.positions.shape[0] == 4 else self.positions
        self.deeper = call.get("deepstack_visual_embeds") or []
        ((first, count),) = inputs.visual
        self.visual = inputs.scattered[0] if inputs.scattered else torch.arange(first, first + count)
        self.weights = None
        self.length, self.hidden_from_answer = inputs.length, set(hidden_from_answer)

    def __call__(self, answer):
        """Return the logits after a prompt and some tokens of the answer."""
        extra = self.model.get_input_embeddings()(torch.tensor([answer], dtype=torch.long))
        hidden = torch.cat((self.embeds, extra), 1)
        after = self.positions.max() if self.positions.ndim == 2 else self.positions[..., -1:]
        further = after + 1 + torch.arange(len(answer)).expand(*self.positions.shape[:-1], -1)
        cos, sin = self.decoder.rotary_emb(hidden, torch.cat((self.positions, further), -1))
        at, visual, extras = torch.arange(hidden.shape[1]), self.visual, [one.clone() for one in self.deeper]
        for number, layer in enumerate(self.decoder.layers):
            hidden, at, visual, extras, cos, sin = self.step(("before", number), hidden, at, visual, extras, cos, sin)
            normed, self.weights = layer.input_layernorm(hidden), None
            if hasattr(layer, "self_attn"):
                sees = at[:, None] >= at[None]
                if answer and number in self.hidden_from_answer:
                    sees &= ~((at[:, None] >= self.length) & self.gone(at)[None])
                mixed, _ = layer.self_attn(normed, position_embeddings=(cos, sin), attention_mask=sees[None, None])
                if self.reduction is not None and (queries := self.reduction.queries(number)):
                    self.weights = eager_weights(self.decoder, layer, normed, (cos, sin))[:, -queries:]
            else:
                mixed = layer.linear_attn(normed)
            hidden = hidden + mixed
            hidden, at, visual, extras, cos, sin = self.step(("within", number), hidden, at, visual, extras, cos, sin)
            found = layer.mlp(layer.post_attention_layernorm(hidden))
            hidden = hidden + (found[0] if isinstance(found, tuple) else found)
            if number < len(extras):
                hidden[0, visual] = hidden[0, visual] + extras[number]
        self.left, self.reduction = at, None
        return self.model.lm_head(self.decoder.norm(hidden))[0, -1]

    def gone(self, at):
        """Return which of these tokens leave later, in the only step."""
        (kept,) = self.steps.values()
        return torch.isin(at, self.visual) & ~torch.isin(at, self.visual[kept.index])

    def step(self, point, hidden, at, visual, extras, cos, sin):
        if self.reduction is not None and point != ("before", 0):
            rows = None if self.weights is None else self.weights[..., visual]
            kept = getattr(self.reduction, point[0])(point[1], hidden[0, visual], rows)
            if kept is not None:
                self.steps[point] = kept
        kept = self.steps.get(point)
        if kept is None:
            return hidden, at, visual, extras, cos, sin
        mixing = matrix(kept, len(visual))
        hidden = hidden.clone()
        hidden[0, visual[kept.index]] = mixing @ hidden[0, visual]
        stays = torch.tensor([place not in visual.tolist() for place in range(len(at))])
        stays[visual[kept.index]] = True
        new = stays.cumsum(0)[visual[kept.index]] - 1
        extras = [mixing @ one for one in extras]
        return hidden[:, stays], at[stays], new, extras, cos[:, stays], sin[:, stays]


def generated(model, inputs, reducing, **options):
    """Return the tokens of an answer, the logits behind each, and the cache."""
    with reduced_decoder(model, inputs, reducing):
        found = model.generate(
            **inputs.arguments, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, output_logits=True,
            return_dict_in_generate=True, **options,
        )  # fmt: skip
    logits = torch.stack([one[0] for one in found.logits])
    return found.sequences[0, -NEW:].tolist(), logits, found.past_key_values


PLANS = {
    "drop before 1": (Plan([("before", 1)], merge=False), ()),
    "merge before 2": (Plan([("before", 2)], merge=True), ()),
    "merge within 0 and 1": (Plan([("within", 0), ("within", 1)], merge=True), ()),
    "merge within 0, drop within 2": (Plan([("within", 0), ("within", 2)], merge=True), ()),
    "cut after 1": (Plan([("before", 2)], merge=False, cut=True), (0, 1)),
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
    with pytest.raises(ValueError, match="'plan' removes tokens from the decoder's cache; generate with a cache"):
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


METHODS = ("fastv", "framefusion", "folding", "late-pruning", "question-pruning")


def method_named(name, last=2):
    """Return a method that acts up to a layer: the decoders here have three, or two."""
    seconds = {
        "folding": Folding(FoldingParameters(layer=last, folded=0.4)),
        "late-pruning": LatePruning(LateParameters(layer=last, share=0.3)),
        "question-pruning": QuestionPruning(QuestionParameters(layer=last - 1, share=0.5)),
    }
    if name in seconds:
        return TwoStage("two", LowResolution(), seconds[name])
    # merges twice, then prunes
    return FastV(last) if name == "fastv" else FrameFusion(Parameters(similarity=0.2, least=0.2))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_published_methods_decide_as_they_do_by_hand(family, name):
    session = opened(family)
    model = session.backbone.model
    last = len(model.get_decoder().layers) - 1
    method = method_named(name, last)
    inputs, reducing = placed(session, method)
    if name == "framefusion" and family == "qwen3.5":
        with pytest.raises(ValueError, match="may need the attention of any layer, and this decoder has linear"):
            generated(model, inputs, reducing)
        return
    reducing.limit = reducing.limit if method.inside is method else None
    answer, logits, _ = generated(model, inputs, reducing)
    hidden_from_answer = range(last) if name == "question-pruning" else ()
    by_hand = ByHand(model, inputs, {}, hidden_from_answer, start(model, inputs, reducing))
    expected = torch.stack([by_hand(answer[:number]) for number in range(NEW)])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)
    assert by_hand.steps
    assert reducing.record.left == len(list(by_hand.steps.values())[-1].index)


@pytest.mark.parametrize("name", METHODS)
def test_sessions_answer_and_stream_with_them(name):
    session, method = opened("qwen2.5-vl"), method_named(name)
    answer = session.ask("What happens?", budget=aviot.Budget(keep=0.5), method=method, max_new_tokens=8)
    pieces = session.ask("What happens?", budget=aviot.Budget(keep=0.5), method=method, max_new_tokens=8, stream=True)
    assert "".join(pieces).strip() == answer.text
    layers = session.backbone.model.get_decoder().layers
    assert not any(len(module._forward_pre_hooks) for layer in layers for module in layer.modules())
    assert len(answer.layer_tokens) == len(layers)
    assert answer.tokens_entering == answer.layer_tokens[0] > answer.tokens_after == len(answer.provenance.weights)
    assert (answer.tokens_entering == answer.tokens_before) == (method.inside is method)
    assert answer.as_dict()["layer_tokens"] == answer.layer_tokens


def test_shares_that_leave_everything_answer_as_the_first_stage_alone():
    session = opened("qwen3-vl")
    alone = session.ask("What happens?", budget=4, method="low-resolution", max_new_tokens=8)
    for second in (
        Folding(FoldingParameters(layer=1, folded=0.0)),
        LatePruning(LateParameters(layer=2, share=1.0)),
        QuestionPruning(QuestionParameters(layer=1, share=1.0)),
    ):
        both = session.ask("What happens?", budget=4, method=TwoStage("two", LowResolution(), second), max_new_tokens=8)
        assert both.text == alone.text
        assert set(both.layer_tokens) == {alone.tokens_after}
    whole = session.ask("What happens?", method="none", max_new_tokens=8)
    for method in ("fastv", "framefusion"):
        same = session.ask("What happens?", budget=aviot.Budget(keep=1.0), method=method, max_new_tokens=8)
        assert same.text == whole.text
        assert set(same.layer_tokens) == {whole.tokens_after}


def test_provenance_goes_through_both_stages():
    session = opened("internvl")
    method = method_named("folding")
    answer = session.ask("What happens?", budget=4, method=method, max_new_tokens=2)
    sources = session.sources("low-resolution").flatten(0, 1)
    found = answer.compressed
    torch.testing.assert_close(answer.provenance.rebuild(sources), found.tokens, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(answer.provenance.weights.sum(1), torch.ones(len(found)))
    assert (
        answer.provenance.indices.shape[1]
        > session.compress("-", method="low-resolution").made.mixture.indices.shape[1]
    )
    assert found.positions.shape == (answer.tokens_after, 3)
    shares = answer.provenance.frame_shares() @ torch.tensor(session.encoded.times)
    torch.testing.assert_close(found.times, shares, atol=1e-4, rtol=1e-4)


def test_decoders_that_do_not_fit_are_refused():
    def ask(family, method, **more):
        return opened(family).ask("What?", budget=2, method=method, max_new_tokens=2, **more)

    linear = TwoStage("two", LowResolution(), Folding(FoldingParameters(layer=1)))
    with pytest.raises(ValueError, match=r"the attention of layer 0, which is a linear-attention layer.*layer from 2"):
        ask("qwen3.5", linear)
    for second in (Folding(), LatePruning(), QuestionPruning()):
        with pytest.raises(ValueError, match="this decoder has 3; choose a layer from 1 to 2"):
            ask("qwen2-vl", TwoStage("two", LowResolution(), second), stream=True)
    with pytest.raises(ValueError, match="a method on tokens and one inside the decoder, got 'uniform' on features"):
        TwoStage("two", Uniform(), Folding())
    config = opened("internvl").backbone.model.get_decoder().config
    for name, value, sentence in (
        (
            "layer_types",
            ["full_attention", "sliding_attention", "full_attention"],
            "and this one has sliding_attention",
        ),
        ("_attn_implementation", "flex_attention", "which 'flex_attention' cannot; load the model with sdpa"),
    ):
        before = getattr(config, name)
        try:
            setattr(config, name, value)
            with pytest.raises(ValueError, match=sentence):
                ask("internvl", FastV())
        finally:
            setattr(config, name, before)


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (Kept(torch.tensor([2, 1])), "must keep ascending indices below"),
        (Kept(torch.tensor([], dtype=torch.long)), "must keep 1 to"),
        (Kept(torch.tensor([0, 10**6])), "must keep ascending indices below"),
        (Kept(torch.tensor([0.5])), "must keep 1 to"),
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


@pytest.mark.parametrize("name", METHODS)
@torch.inference_mode()
def test_half_precision_answers(name):
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        session = opened("qwen2.5-vl", dtype)
        inputs, reducing = placed(session, method_named(name))
        found.append((reducing, generated(session.backbone.model, inputs, reducing)[1]))
    (whole, expected), (half, logits) = found
    assert logits.isfinite().all()
    assert half.made.tokens.dtype == torch.bfloat16
    assert half.counts[0] == whole.counts[0]
    assert half.record.result(half.made, half.order).tokens.dtype == torch.bfloat16
    if name != "framefusion":  # whose counts depend on similarities
        assert half.counts == whole.counts
        assert (logits[0] - expected[0]).abs().max() < 0.5 * expected[0].std()


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
