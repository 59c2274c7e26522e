"""Tiny random Qwen models through the plug-in: our tokens and positions arrive, and give the tokens of transformers."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM wants an environment of its own: make test-vllm")

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
import tiny_models as tiny
from loaded import clip
from vllm_server import Served

from aviot import VideoLM
from aviot.backbones import registry
from aviot.backbones.huggingface.processing import Processing
from aviot.budget import Budget
from aviot.engine.decoder_folder import save_decoder
from aviot.engine.prompt_rows import UnsupportedDecoder, prompt_rows
from aviot.engine.remote import RemoteEngine
from aviot.engine.vllm import VllmEngine

pytestmark = pytest.mark.vllm
ASKED = [(method, ratio) for method in ("aviot", "uniform", "vidcom2", "none") for ratio in (2.0, 4.0)]
NEW_TOKENS = 12
WIDTH = 128


def new_lm(version):
    """A tiny Qwen2-VL or Qwen2.5-VL whose heads are as wide as vLLM's CPU attention needs them."""
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
    )

    tokenizer = tiny.new_tokenizer(tiny.QWEN_TOKENS, "<|vision_start|><|video_pad|><|vision_end|>")
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
    text = tiny._text_sizes(tokenizer, hidden_size=WIDTH, rope_parameters=rope)
    vision = {"depth": 2, "num_heads": 2, "patch_size": 14}
    if version == "2":
        vision |= {"embed_dim": 16, "hidden_size": WIDTH, "mlp_ratio": 2}
        config = Qwen2VLConfig(text_config=text, vision_config=vision, **tiny._ids(tokenizer))
        model = tiny._ready(Qwen2VLForConditionalGeneration(config))
    else:
        vision |= {"hidden_size": 16, "out_hidden_size": WIDTH, "intermediate_size": 24, "window_size": 56}
        vision |= {"fullatt_block_indexes": [1], "tokens_per_second": 2}
        config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **tiny._ids(tokenizer))
        model = tiny._ready(Qwen2_5_VLForConditionalGeneration(config))
    settings = tiny.VIDEO_SETTINGS["qwen2-vl" if version == "2" else "qwen2.5-vl"]
    (found,) = (one for one in registry.families() if one.handles(model.config.to_dict()))
    return VideoLM(found(model, Processing(tokenizer, tokenizer.chat_template, {}, settings)))


def inputs_of(lm):
    """Decoder inputs by methods of all kinds, about a video whose frames' times are uneven."""
    session = lm.open(clip(14), source_fps=2.0, fps=2.0)
    found = []
    for number, (method, ratio) in enumerate(ASKED):
        prompt = session.prompt(f"What happens {number} times?")
        found.append(session.prepare(prompt, budget=Budget(ratio=ratio), method=method).inputs)
    return found


def tokens_of(engine, inputs):
    return [token for piece in engine.pieces(inputs, NEW_TOKENS) for token in piece.tokens]


@pytest.mark.parametrize("version", ["2.5", "2"])
def test_in_process(version):
    lm = new_lm(version)
    inputs = inputs_of(lm)
    rows = [prompt_rows(lm.backbone.model, one)[0] for one in inputs]
    assert any(int(row.positions.max()) != len(row.embeds) - 1 for row in rows)  # not the positions of text
    expected = [tokens_of(lm.engine, one) for one in inputs]
    engine = VllmEngine(lm.backbone.model, lm.backbone.tokenizer, max_model_len=4096, enforce_eager=True)
    try:
        assert [tokens_of(engine, one) for one in inputs] == expected
        moved = {**inputs[0].arguments, "position_ids": inputs[0].arguments["position_ids"] * np.int64(7)}
        other = type(inputs[0])(moved, inputs[0].length, inputs[0].visual, scattered=inputs[0].scattered)
        assert tokens_of(engine, other) == tokens_of(lm.engine, other) != expected[0]  # positions matter
    finally:
        engine.close()


def test_behind_an_address(tmp_path):
    lm = new_lm("2.5")
    save_decoder(lm.backbone.model, lm.backbone.tokenizer, tmp_path / "decoder")
    server = Served(tmp_path / "decoder", tmp_path / "log")
    server.start()
    engine = RemoteEngine(lm.backbone.model, lm.backbone.tokenizer, server.address)
    try:
        for one in inputs_of(lm)[:4]:
            assert tokens_of(engine, one) == tokens_of(lm.engine, one)
    finally:
        engine.close()
        server.end()


def test_deeper_layers_are_refused():
    lm = VideoLM(tiny.backbone("qwen3-vl"))
    with pytest.raises(UnsupportedDecoder, match="cannot run on prompt embeddings alone"):
        RemoteEngine(lm.backbone.model, lm.backbone.tokenizer, "http://127.0.0.1:1")
