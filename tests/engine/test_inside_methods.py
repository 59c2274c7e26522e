"""Published methods inside the decoder of every family, and what a session says about them."""

import pytest
import torch
from by_hand import FAMILIES, NEW, ByHand, generated, opened, placed

import aviot
from aviot.engine.fitting import start
from aviot.methods import TwoStage, get
from aviot.methods.baselines import LowResolution, Uniform
from aviot.methods.peers.fastv import FastV
from aviot.methods.peers.framefusion import FrameFusion, Parameters
from aviot.methods.peers.inside.attention import LatePruning
from aviot.methods.peers.inside.attention import Parameters as LateParameters
from aviot.methods.peers.inside.decoding import Choosing
from aviot.methods.peers.inside.decoding import Parameters as ChoosingParameters
from aviot.methods.peers.inside.folding import Folding
from aviot.methods.peers.inside.folding import Parameters as FoldingParameters
from aviot.methods.peers.inside.question import Parameters as QuestionParameters
from aviot.methods.peers.inside.question import QuestionPruning

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


@pytest.mark.parametrize("change", [0.9, 2.0])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_decoded_tokens_see_what_they_choose(family, change):
    """DyCoke's second stage, against masks by hand; with a change of 2 every token chooses."""
    session, parameters = opened(family), ChoosingParameters(layer=1, hidden=0.8, change=change)
    model = session.backbone.model
    inputs, reducing = placed(session, TwoStage("two", LowResolution(), Choosing(parameters)))
    reducing.limit = None
    if family == "qwen3.5":
        with pytest.raises(ValueError, match="the attention of layer 0, which is a linear-attention layer"):
            generated(model, inputs, reducing)
        return
    answer, logits, _ = generated(model, inputs, reducing)
    by_hand = ByHand(model, inputs, {})
    by_hand.choosing = parameters
    expected = torch.stack([by_hand(answer[:number]) for number in range(NEW)])
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-5)
    assert by_hand.unseen.keys() >= {inputs.length}
    assert change < 1 or len(by_hand.unseen) == NEW - 1
    assert reducing.record.left == len(reducing.order)
    if family != "llava-video":  # whose class keeps a cache in any case
        with pytest.raises(ValueError, match="needs the decoder's cache for this prompt; generate with a cache"):
            generated(model, *placed(session, TwoStage("two", LowResolution(), Choosing(parameters))), use_cache=False)


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


def test_several_prompts_are_answered_one_after_another():
    session = opened("smolvlm")
    prompts = [session.prompt(question) for question in ("What happens?", "Who is there, and where?")]
    together = session.answer_all(prompts, budget=4, method="fastv", max_new_tokens=4)
    alone = [session.ask(prompt.text, budget=4, method="fastv", max_new_tokens=4) for prompt in prompts]
    assert [each.text for each in together] == [each.text for each in alone]
    assert [each.tokens_after for each in together] == [each.tokens_after for each in alone]


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


@pytest.mark.parametrize("first", ["low-resolution", "holitom"])
def test_provenance_goes_through_both_stages(first):
    session = opened("internvl")
    method = TwoStage("two", get(first), method_named("folding").second)
    answer = session.ask("What happens?", budget=4, method=method, max_new_tokens=2)
    sources = session.sources("low-resolution").flatten(0, 1)
    found = answer.compressed
    torch.testing.assert_close(answer.provenance.rebuild(sources), found.tokens, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(answer.provenance.weights.sum(1), torch.ones(len(found)))
    entered = session.compress("-", budget=4, method=first)
    assert answer.tokens_entering == len(entered.tokens)
    assert answer.provenance.indices.shape[1] > entered.made.mixture.indices.shape[1]
    assert found.positions.shape == (answer.tokens_after, 3)
    shares = answer.provenance.frame_shares() @ torch.tensor(session.encoded.times)
    torch.testing.assert_close(found.times, shares, atol=1e-4, rtol=1e-4)


def test_decoders_that_do_not_fit_are_refused():
    def ask(family, method, **more):
        return opened(family).ask("What?", budget=2, method=method, max_new_tokens=2, **more)

    linear = TwoStage("two", LowResolution(), Folding(FoldingParameters(layer=1)))
    with pytest.raises(ValueError, match=r"layer 0, which is a linear-attention layer.*attention \(1\)"):
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
