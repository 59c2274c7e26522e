"""Decoders outside this process: folders that hold them, what they are sent, and servers in trouble."""

import json
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from completions_server import KEY, serving

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
from loaded import lm_of, session_of
from typer.testing import CliRunner

from aviot.cli import app
from aviot.engine import remote
from aviot.engine.base import EngineUnavailable
from aviot.engine.choice import check_engine, engine_of
from aviot.engine.decoder_folder import check_settings, save_decoder
from aviot.engine.prompt_rows import UnsupportedDecoder, prompt_rows
from aviot.engine.remote import RemoteEngine

COUNTED = ("llava-video", "llava-onevision", "internvl", "video-llama3", "smolvlm")
NEW_TOKENS = 6


@cache
def ready(family, method="uniform"):
    session = session_of(family)
    return session.prepare(session.prompt("What is it?"), budget=2, method=method, max_new_tokens=NEW_TOKENS)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The decoder of each family."""
    root = tmp_path_factory.mktemp("decoders")
    for family in COUNTED:
        backbone = lm_of(family).backbone
        save_decoder(backbone.model, backbone.tokenizer, root / family)
    return root


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(remote, "BACKOFF_SECONDS", 0.02)
    monkeypatch.setattr(remote, "PROBE_SECONDS", 0.0)


def engine_for(family, address, **options):
    backbone = lm_of(family).backbone
    return RemoteEngine(backbone.model, backbone.tokenizer, address, **options)


def told(engine, inputs):
    pieces = list(engine.pieces(inputs, NEW_TOKENS))
    return [token for piece in pieces for token in piece.tokens], "".join(piece.text for piece in pieces).strip()


@pytest.mark.parametrize("family", COUNTED)
def test_the_tokens_of_this_process(family, folders):
    lm, one = lm_of(family), ready(family)
    expected = told(lm.engine, one.inputs)
    with serving(folders / family) as server:
        engine = engine_for(family, server.address)
        try:
            assert told(engine, one.inputs) == expected
            lm_engine, lm.engine = lm.engine, engine
            try:
                prompts = [session_of(family).prompt(text) for text in ("What is it?", "And who is that there?")]
                answers = session_of(family).answer_all(prompts, budget=2, method="uniform", max_new_tokens=NEW_TOKENS)
            finally:
                lm.engine = lm_engine
            alone = session_of(family).answer_all(prompts, budget=2, method="uniform", max_new_tokens=NEW_TOKENS)
            assert [one.text for one in answers] == [one.text for one in alone]
            assert {"prefill", "generate"} <= set(answers[0].milliseconds)
        finally:
            engine.close()


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl"])
def test_positions_arrive_unchanged(family):
    inputs = ready(family).inputs
    (row,) = prompt_rows(lm_of(family).backbone.model, inputs)
    assert torch.equal(row.positions, inputs.arguments["position_ids"][-3:, 0])
    again = remote._body(row, 3, [7])["vllm_xargs"]
    assert torch.equal(remote_positions(again, len(row.embeds)), row.positions)
    with pytest.raises(ValueError, match="three positions for each of 3 tokens"):
        remote_positions(again, 3)


def remote_positions(arguments, length):
    from aviot.engine.vllm_positions import POSITIONS, from_text

    return from_text(arguments[POSITIONS], length)


def test_padding_is_left_out():
    session, backbone = session_of("llava-onevision"), lm_of("llava-onevision").backbone
    asked = [session.prompt(text) for text in ("What?", "What is it that is seen here?")]
    videos = [ready("llava-onevision").video] * 2
    both = prompt_rows(backbone.model, backbone.place(asked, videos))
    for prompt, video, row in zip(asked, videos, both, strict=True):
        (alone,) = prompt_rows(backbone.model, backbone.place([prompt], [video]))
        assert torch.equal(alone.embeds, row.embeds)


def test_a_server_in_trouble(folders):
    family, one = "llava-video", ready("llava-video").inputs
    expected = told(lm_of(family).engine, one)
    with serving(folders / family) as server:
        engine = engine_for(family, server.address)
        server.trouble = [503, 500, 429]  # before the first token: asked again
        assert told(engine, one) == expected
        assert engine.problem() is None
        for trouble, said in (
            ("break", "broke off"),
            ("error", "the engine is dead"),
            ("abort", "ended the answer early: abort"),
        ):
            server.trouble = [trouble] * 9
            with pytest.raises(EngineUnavailable, match=said):
                told(engine, one)
        server.trouble = [400]
        with pytest.raises(ValueError, match=r"refuses the prompt, status 400: .*trouble 400"):
            told(engine, one)
        server.trouble = [503] * 9
        with pytest.raises(EngineUnavailable, match="status 503"):
            told(engine, one)
        server.trouble = []
        port = server.server_port
    with pytest.raises(EngineUnavailable, match="does not answer"):
        told(engine, one)
    assert "does not answer" in engine.problem()
    with serving(folders / family, port):
        assert told(engine, one) == expected
        assert engine.problem() is None
    engine.close()
    with pytest.raises(EngineUnavailable, match="has been closed"):
        told(engine, one)


def test_a_request_that_is_left_closes_its_connection(folders):
    with serving(folders / "llava-video") as server:
        engine = engine_for("llava-video", server.address)
        server.trouble = ["slow"]
        pieces = engine.pieces(ready("llava-video").inputs, 200)
        next(pieces)
        pieces.close()
        assert server.left.wait(10)
        left = engine.pieces(ready("llava-video").inputs, 200)
        engine.close()
        with pytest.raises(EngineUnavailable, match="was closed before"):
            list(left)


def test_keys(folders):
    with serving(folders / "llava-video", key=KEY) as server:
        for key, works in ((KEY, True), (None, False), ("wrong", False)):
            engine = engine_for("llava-video", server.address, key=key)
            if works:
                told(engine, ready("llava-video").inputs)
            else:
                with pytest.raises(EngineUnavailable, match="refuses the API key"):
                    told(engine, ready("llava-video").inputs)
            engine.close()


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("tensorrt", "an engine is transformers, vllm or a vLLM server's address"),
        ("http://", "must look like"),
        ("http://host:99999", "must look like"),
        ("http://host/v2", "must look like"),
        ("http://me:word@host", "must not have a password"),
        ("ftp://host", "an engine is"),
    ],
)
def test_wrong_engines(choice, said):
    with pytest.raises(ValueError, match=said):
        check_engine(choice)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_vllm_is_asked_for_where_it_is_missing():
    with pytest.raises(ValueError, match="the engine vllm needs vLLM, which is not installed"):
        check_engine("vllm")


def test_the_command_writes_the_same_decoder(folders, tmp_path):
    golden = Path(__file__).parents[1] / "golden" / "checkpoint"
    words = ["convert", "--decoder", str(golden), str(tmp_path / "decoder")]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["architecture"] == "Qwen2ForCausalLM"
    names = sorted(path.name for path in (tmp_path / "decoder").iterdir())
    assert names == sorted(path.name for path in (folders / "llava-video").iterdir())
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "decoder" / name).read_bytes() == (folders / "llava-video" / name).read_bytes()
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
    assert "exists" in again.output


def test_layers_are_freed_of_a_decoder_that_runs_elsewhere(folders):
    import tiny_models as tiny

    from aviot import VideoLM

    lm = VideoLM(tiny.backbone("llava-onevision"))
    with serving(folders / "llava-onevision") as server:
        lm.engine = engine_of(f"{server.address}/v1", lm.backbone.model, lm.backbone.tokenizer)
        assert len(lm.backbone.model.get_decoder().layers) == 0
        expected = told(lm_of("llava-onevision").engine, ready("llava-onevision").inputs)
        assert told(lm.engine, ready("llava-onevision").inputs) == expected
        lm.engine.close()


def test_what_cannot_run_outside_is_refused(tmp_path):
    backbone = lm_of("llava-video").backbone
    engine = engine_for("llava-video", "http://127.0.0.1:9")
    inside = ready("llava-video", "fastv")
    with pytest.raises(ValueError, match="'fastv' drops tokens inside the decoder"):
        engine.pieces(inside.inputs, 3, inside.reducing)
    engine.close()
    for family in ("qwen3-vl", "qwen3.5"):
        with pytest.raises(UnsupportedDecoder, match="cannot run on prompt embeddings alone"):
            engine_for(family, "http://127.0.0.1:9")
    (tmp_path / "there").mkdir()
    with pytest.raises(ValueError, match="exists; name a new folder"):
        save_decoder(backbone.model, backbone.tokenizer, tmp_path / "there")


def test_settings_that_change_the_logits(caplog):
    import tiny_models as tiny

    model = tiny.backbone("llava-onevision").model
    check_settings(model)
    model.generation_config.repetition_penalty = 1.05
    check_settings(model)
    assert "repetition penalty of 1.05 is not applied" in caplog.text
    model.generation_config.no_repeat_ngram_size = 3
    with pytest.raises(UnsupportedDecoder, match="NoRepeatNGram"):
        check_settings(model)


def test_damaged_weights_are_found_while_writing(tmp_path):
    import tiny_models as tiny

    backbone = tiny.backbone("llava-onevision")
    with torch.no_grad():
        backbone.model.get_decoder().layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"layers\.1\.mlp\.up_proj\.weight is not finite"):
        save_decoder(backbone.model, backbone.tokenizer, tmp_path / "decoder")
    assert not (tmp_path / "decoder").exists()


def test_the_server_with_an_engine_behind_an_address(folders, monkeypatch):
    pytest.importorskip("fastapi")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "serve"))
    from asking import asked, eventually, frames_url, running

    from aviot import VideoLM

    golden = Path(__file__).parents[1] / "golden" / "checkpoint"
    lm, alone = VideoLM.from_pretrained(golden, device="cpu"), VideoLM.from_pretrained(golden, device="cpu")
    question = asked(frames_url(6))
    with running(alone) as own:
        expected = own.post(question)[1]["choices"]
    with serving(folders / "llava-video") as engine, running(lm, engine=engine.address) as server:
        assert server.post(question)[1]["choices"] == expected
        inside = question | {"aviot": {"method": "fastv"}}
        status, said = server.post(inside)
        assert status == 422, said
        assert "drops tokens inside the decoder" in said["error"]["message"]
        engine.trouble = [503] * 9
        status, said = server.post(question)
        assert (status, said["error"]["code"]) == (503, "engine_unavailable")
        engine.trouble = []
        assert eventually(lambda: server.request("GET", "/health")[0] == 200)  # each asks whether it is back
        assert server.post(question)[1]["choices"] == expected
