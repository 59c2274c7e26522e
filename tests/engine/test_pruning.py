"""Tokens dropped inside the decoder, against a decoder that is run layer by layer on fewer tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DynamicCache

import aviot
from aviot.engine.attention_rows import attention_rows
from aviot.engine.base import Reducing
from aviot.engine.reduction import reduced_decoder
from aviot.methods import DecoderMethod

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"


class KeepLoudest(DecoderMethod):
    """Keep the tokens of largest norm before layer 1."""

    name = "keep-loudest"
    layer = 1

    def select(self, hidden, attention, count):
        return hidden.norm(dim=-1).topk(count).indices.sort().values


class KeepAttended(DecoderMethod):
    """Keep the tokens that the last prompt token attends to most in layer 0."""

    name = "keep-attended"
    layer = 1
    needs_attention = True

    def select(self, hidden, attention, count):
        assert attention.shape[1] == len(hidden)
        return attention.mean(0).topk(count).indices.sort().values


@pytest.fixture(scope="module")
def lm():
    return aviot.VideoLM.from_pretrained(GOLDEN, device="cpu")


@pytest.fixture(scope="module")
def session(lm):
    frames = np.random.default_rng(0).integers(0, 255, (6, 30, 40, 3), dtype=np.uint8)
    return lm.open(frames, source_fps=2)


def placed(session, method):
    prompt = session.prompt("What is it?")
    (video,) = session.backbone.compress([session.encoded], [prompt], aviot.session.CompressionRequest(4, method))
    return session.backbone.place([prompt], [video]), video


def reference_logits(model, embeds, start, count, select):
    """Run the decoder's layers by hand: all tokens through layer 0, the selected ones with their positions after it."""
    decoder = model.get_decoder()
    positions = torch.arange(embeds.shape[1])[None]
    rotary = decoder.rotary_emb(embeds, positions)
    attention = torch.ones(embeds.shape[1], embeds.shape[1]).tril().bool()[None, None]
    hidden = decoder.layers[0](embeds, attention_mask=attention, position_embeddings=rotary)
    kept = select(embeds, hidden[0, start : start + count])
    index = torch.cat((torch.arange(start), start + kept, torch.arange(start + count, embeds.shape[1])))
    hidden, rotary = hidden[:, index], tuple(part[:, index] for part in rotary)
    for layer in decoder.layers[1:]:
        causal = torch.ones(len(index), len(index)).tril().bool()[None, None]
        hidden = layer(hidden, attention_mask=causal, position_embeddings=rotary)
    return model.lm_head(decoder.norm(hidden))[0, -1], kept


@pytest.mark.parametrize("method", [KeepLoudest(), KeepAttended()])
@torch.inference_mode()
def test_the_prefill_is_that_of_the_tokens_that_stay(lm, session, method):
    model = lm.backbone.model
    inputs, video = placed(session, method)
    ((start, count),) = inputs.visual
    assert count == len(video.tokens) == 6 * lm.backbone.tokens_per_frame
    reducing = Reducing(method, video.made, video.order, count // 4)
    with reduced_decoder(model, inputs, reducing):
        found = model(**inputs.arguments, logits_to_keep=1).logits[0, -1]

    def select(embeds, visual):
        rows = None
        if method.needs_attention:
            layer = model.get_decoder().layers[0]
            rotary = model.get_decoder().rotary_emb(embeds, torch.arange(embeds.shape[1])[None])
            rows = attention_rows(layer.self_attn, layer.input_layernorm(embeds), rotary)[:, 0, start : start + count]
        return method.select(visual, rows, count // 4)

    expected, kept = reference_logits(model, inputs.arguments["inputs_embeds"], start, count, select)
    assert torch.equal((reducing.record.place >= 0).nonzero()[:, 0], kept)
    assert reducing.counts == [count] + [count // 4] * (len(reducing.counts) - 1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_caches_hold_the_tokens_that_stay_and_steps_after_the_prefill_agree(lm, session):
    """Decoding with caches equals a prefill of prompt and answer, in which the same tokens are dropped."""
    model = lm.backbone.model
    inputs, video = placed(session, KeepLoudest())
    ((_, count),) = inputs.visual
    cache, reducing = DynamicCache(), Reducing(KeepLoudest(), video.made, video.order, count // 4)
    with reduced_decoder(model, inputs, reducing):
        first = model(**inputs.arguments, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        token = first[:, -1:].argmax(-1)
        mask = torch.ones(1, inputs.length + 1, dtype=torch.long)
        positions = torch.tensor([[inputs.length]])
        stepped = model(input_ids=token, attention_mask=mask, position_ids=positions, past_key_values=cache).logits
    lengths = [layer.keys.shape[-2] for layer in cache.layers]
    kept = inputs.length - count + count // 4
    assert lengths == [inputs.length + 1] + [kept + 1] * (len(lengths) - 1)
    longer = torch.cat((inputs.arguments["inputs_embeds"], model.get_input_embeddings()(token)), 1)
    ((start, _),) = inputs.visual
    expected, _ = reference_logits(model, longer, start, count, lambda *_: (reducing.record.place >= 0).nonzero()[:, 0])
    torch.testing.assert_close(stepped[0, -1], expected, atol=1e-5, rtol=1e-5)


def test_a_session_answers_and_says_what_stayed(session):
    whole = session.ask("What is it?", method="none", max_new_tokens=4)
    answer = session.ask("What is it?", budget=aviot.Budget(keep=0.25), method=KeepLoudest(), max_new_tokens=4)
    assert answer.tokens_before == whole.tokens_before
    assert answer.tokens_after == -(-whole.tokens_before // 4)
    mixture = answer.provenance
    assert mixture.weights.tolist() == [[1.0]] * len(mixture.weights)
    assert len(mixture.weights) <= answer.tokens_after  # separators that stayed have no source
    assert answer.layer_tokens == (answer.tokens_before, *[answer.tokens_after] * (len(answer.layer_tokens) - 1))
    assert answer.tokens_entering == answer.tokens_before
    everything = session.ask("What is it?", budget=aviot.Budget(keep=1.0), method=KeepLoudest(), max_new_tokens=4)
    assert everything.text == whole.text
    assert not session.backbone.model.get_decoder().layers[1]._forward_pre_hooks


def test_a_number_of_supports_counts_whole_frames(session):
    answer = session.ask("What is it?", budget=aviot.Budget(supports=2), method=KeepLoudest(), max_new_tokens=2)
    assert answer.tokens_after == 2 * session.backbone.tokens_per_frame


@pytest.mark.parametrize("selected", [[3, 1], [1, 1], [], [-1, 2], [0, 10**6], [True, False], [0.5]], ids=str)
def test_a_selection_that_is_not_one_is_refused(session, selected):
    class Selects(KeepLoudest):
        def select(self, hidden, attention, count):
            return torch.tensor(selected)

    with pytest.raises(ValueError, match="'keep-loudest' must select 1 to"):
        session.ask("What is it?", budget=4, method=Selects(), max_new_tokens=2)


def test_what_cannot_be_dropped_is_refused(session):
    with pytest.raises(ValueError, match="drops tokens inside the decoder; ask a question with it instead"):
        session.compress("What is it?", budget=4, method=KeepLoudest())

    class TooDeep(KeepLoudest):
        layer = 99

    with pytest.raises(ValueError, match="drops tokens before layer 99, and this decoder has"):
        session.ask("What is it?", budget=4, method=TooDeep(), max_new_tokens=2)
    with pytest.raises(ValueError, match="drops tokens before layer 99"):
        session.ask("What is it?", budget=4, method=TooDeep(), stream=True)


def test_the_model_alone_refuses_methods_that_an_engine_carries_out(lm, session):
    inputs = lm.backbone.processor(videos=np.asarray(session.video.frames), source_fps=2, questions=["What is it?"])
    with pytest.raises(ValueError, match="'keep-loudest' drops tokens inside the decoder; ask by a VideoLM instead"):
        lm.backbone.model.generate(**inputs, ratio=4.0, compressor=KeepLoudest(), max_new_tokens=2)
