"""Sessions on every family: several turns, streams, batches, cached encodings, types and sizes."""

import json
import shutil

import numpy as np
import pytest
import tiny_models as tiny
import torch
from loaded import with_parts

import aviot
from aviot import Budget
from aviot.backbones import registry
from aviot.explain.comparison import Comparison, compare
from aviot.explain.pictures import open_with_pictures

FAMILIES = tuple(tiny.FAMILIES)
HISTORY = [("What is it?", "A bus."), ("Where?", "Here.")]
SQUARES = ("llava-onevision", "internvl", "smolvlm")


def frames(count, size=(60, 100), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def models(stored):
    loaded = {}

    def of(family):
        if family not in loaded:
            loaded[family] = aviot.VideoLM.from_pretrained(stored(family))
        return loaded[family]

    return of


@pytest.fixture(scope="module")
def session_of(models):
    opened = {}

    def of(family):
        if family not in opened:
            opened[family] = models(family).open(frames(9), source_fps=2)
        return opened[family]

    return of


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stream_is_the_answer(session_of, family):
    session = session_of(family)
    for method in ("aviot", "low-resolution", "none"):
        how = {"budget": 2, "method": method, "max_new_tokens": 6, "history": HISTORY}
        assert "".join(session.ask("Why?", stream=True, **how)).strip() == session.ask("Why?", **how).text


def test_what_ran_instead_of_untrained_aviot_is_named(session_of):
    session = session_of("smolvlm")
    own = session.ask("Why?", budget=2, max_new_tokens=2)
    assert own.method == own.as_dict()["method"] == "aviot-free"
    assert session.ask("Why?", budget=2, method="uniform", max_new_tokens=2).method == "uniform"
    (entry, other) = compare(session, Comparison("Why?", Budget(ratio=2), ("aviot", "aviot-free"), 2))
    assert (entry.title, other.title) == ("AVIOT (as aviot-free)", "AVIOT, training-free")
    assert entry.answer == other.answer
    trained = aviot.VideoLM(with_parts(session.backbone)).open(frames(9), source_fps=2)
    assert trained.ask("Why?", budget=2, max_new_tokens=2).method == "aviot"


@pytest.mark.parametrize("family", FAMILIES)
def test_earlier_turns_stand_in_the_prompt(session_of, family):
    session = session_of(family)
    text = session.prompt("Why?", history=HISTORY).content.text
    places = [text.index(part) for turn in (*HISTORY, ("Why?", "")) for part in turn if part]
    assert places == sorted(places)
    assert text.count(session.backbone.placeholder) == 1
    assert text.index(session.backbone.placeholder) < places[0]
    with pytest.raises(ValueError, match="which stands for a video; leave it out"):
        session.ask("Why?", history=[(session.backbone.token, "x")])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_is_its_members_and_is_encoded_once(session_of, family, monkeypatch):
    session = session_of(family)
    monkeypatch.setattr(session.backbone, "encode_one", None)  # nothing is encoded again
    questions = ["Why?", "And who is there at the end of it?", "When?"]
    prompts = [session.prompt(question) for question in questions]
    batch = session.answer_all(prompts, budget=2, max_new_tokens=5, record=True)
    alone = [session.ask(question, budget=2, max_new_tokens=5) for question in questions]
    assert [answer.text for answer in batch] == [answer.text for answer in alone]
    for one, other in zip(batch, alone, strict=True):
        torch.testing.assert_close(one.provenance.weights, other.provenance.weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_several_videos_in_one_batch(models, session_of, family):
    lm, first = models(family), session_of(family)
    second = lm.open(frames(5, (90, 64), seed=1), source_fps=2)
    asked = [(first, "Why?"), (second, "And who is there at the end?"), (first, "When?")]
    for method in ("aviot", "low-resolution"):
        how = {"budget": 2, "method": method, "max_new_tokens": 5}
        alone = [session.ask(question, **how) for session, question in asked]
        batch = lm.ask_all(asked, **how)
        assert [answer.text for answer in batch] == [answer.text for answer in alone]
        counts = [(answer.frames, answer.supports, answer.tokens_before, answer.tokens_after) for answer in batch]
        assert counts == [(one.frames, one.supports, one.tokens_before, one.tokens_after) for one in alone]


def test_sessions_of_another_model_are_refused(models, session_of):
    with pytest.raises(ValueError, match="opened by another model"):
        models("internvl").ask_all([(session_of("smolvlm"), "Why?")])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("count", "size"), [(1, (48, 64)), (4, (100, 60)), (9, (60, 100))])
def test_tokens_are_counted_without_weights(models, stored, family, count, size):
    session = models(family).open(frames(count, size), source_fps=2)
    shape = registry.family_of(stored(family)).shape_of(stored(family), count, size)
    assert shape.decoder.grid == session.encoded.grid
    assert shape.frames == len(session.encoded.times)
    assert shape.frames * shape.decoder.tokens_per_support + shape.decoder.structure_tokens == (
        session.encoded.tokens_before
    )
    assert session.backbone.frame_size(count, size) == tuple(session.video.frames.shape[1:3])
    if family != "video-llama3":  # it drops unchanged tokens itself
        assert session.ask("Why?", method="none", max_new_tokens=1).tokens_after == session.encoded.tokens_before


def test_experts_count_as_the_layers_that_a_token_passes(models):
    assert models("qwen3-vl-moe").backbone.decoder.feed_forward == 2 * 16
    assert models("qwen3-vl").backbone.decoder.feed_forward == 48


@pytest.mark.parametrize("family", FAMILIES)
def test_supports_are_whole_frames(session_of, family):
    session = session_of(family)
    answer = session.ask("Why?", budget=2, method="uniform", max_new_tokens=1)
    assert answer.supports == -(-len(session.encoded.times) // 2)
    assert answer.path[-1] == answer.supports


@pytest.mark.parametrize("family", SQUARES)
def test_the_explorer_reads_the_pixels_that_answers_are_made_from(models, family):
    lm, one = models(family), frames(4)
    expected = lm.open(one, source_fps=2)
    session, pictures = open_with_pictures(lm, one, source_fps=2)
    assert np.array_equal(session.video.frames, expected.video.frames)
    assert torch.equal(session.encoded.features, expected.encoded.features)
    assert pictures.size == (100, 60)


def test_patches_that_do_not_fill_the_frame(stored, tmp_path):
    """The encoder drops the last pixels of a side that its patches do not divide."""
    folder = shutil.copytree(stored("llava-onevision"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["image_size"] = 44  # seven patches of six pixels
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": {"height": 44, "width": 44}}))
    backbone = registry.family_of(folder).without_weights(folder)
    assert backbone.patch_cover == 42 / 44
    assert backbone.grid_of((44, 44)) == (4, 4)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_runs_through(stored, family):
    lm = aviot.VideoLM(with_parts(aviot.VideoLM.from_pretrained(stored(family), dtype="bfloat16").backbone))
    assert lm.backbone.model.dtype == torch.bfloat16
    session = lm.open(frames(9), source_fps=2)
    assert session.encoded.features.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in lm.backbone.parts["compressor"].parameters()} == {torch.float32}
    made = session.compress("Why?", budget=2)
    assert made.compression.provenance().coefficients.dtype == torch.float32
    rebuilt = torch.einsum("kst,tsd->ksd", made.compression.provenance().coefficients, session.sources("aviot").float())
    torch.testing.assert_close(rebuilt.bfloat16(), made.compression.features, atol=0.02, rtol=0.02)
    assert isinstance(session.ask("Why?", budget=2, max_new_tokens=4).text, str)
