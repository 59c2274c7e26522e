"""The small Qwen2-VL: the recipe's decoder input is that of inference, it learns, and its export loads as a model."""

from dataclasses import replace

import pytest
import torch

from aviot import VideoLM
from aviot.methods import Compressed
from aviot.methods.registry import get
from aviot_lab.demo_model import qwen
from aviot_lab.demo_model import tokenizer as tokenizers
from aviot_lab.demo_model import train as training
from aviot_lab.demo_model.accuracy import accuracy, question_batch
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.curriculum import CURRICULUM, Curriculum, Phase
from aviot_lab.demo_model.export import export
from aviot_lab.demo_model.families import batches_of, family_of
from aviot_lab.demo_model.log import LOG
from aviot_lab.demo_model.qwen import SPECIAL, new_qwen, qwen_config
from aviot_lab.demo_model.tokenizer import with_special
from aviot_lab.demo_model.training_model import OPTION_LAYERS, TrainingModel
from aviot_lab.field.evaluator import FieldEvaluator
from aviot_lab.field.size import FieldSetting
from aviot_lab.world import World, WorldConfig, render

FRAMES = 16
PAIRS = FRAMES // 2


def small_qwen(tokenizer):
    """Return the configuration, a few channels wide."""
    config = qwen_config(tokenizer)
    text, vision = config.text_config, config.vision_config
    text.hidden_size = vision.hidden_size = 32
    text.intermediate_size, text.num_hidden_layers = 48, OPTION_LAYERS
    text.layer_types = text.layer_types[:OPTION_LAYERS]
    text.rope_parameters = {**text.rope_parameters, "mrope_section": [1, 1, 2]}
    vision.depth, vision.embed_dim, vision.num_heads = 1, 16, 2
    return config


@pytest.fixture(scope="module")
def words(tokenizer):
    return with_special(tokenizer, SPECIAL)


@pytest.fixture
def narrow(monkeypatch, tokenizer):
    monkeypatch.setattr(qwen, "qwen_config", small_qwen)
    monkeypatch.setattr(tokenizers, "build_tokenizer", lambda: tokenizer)


@pytest.fixture
def model(narrow, words):
    return new_qwen(words, seed=1).eval()


@pytest.fixture(scope="module")
def batch(words):
    family = family_of(new_qwen(words, 0), words)
    return question_batch(BatchWriter(words, family.texts), World(WorldConfig()), "validation", (0, 1), FRAMES)


def test_the_model_is_as_large_as_the_demo_model(words):
    model = new_qwen(words, 0)
    assert 14e6 < 2 * sum(weight.numel() for weight in model.parameters()) < 16e6  # bytes in bfloat16
    assert model.config.text_config.tie_word_embeddings
    family = family_of(model, words)
    assert family.grid == (18, 18)
    assert family.last_frames(5).tolist() == [1, 3, 4]


@pytest.mark.parametrize("kept", [None, range(0, PAIRS * 81, 5), range(81 * 2, 81 * 5)])
def test_what_is_trained_is_what_a_session_decodes(model, words, batch, kept):
    """Embeddings, positions on three axes and logits, for whole videos and for some of their tokens."""
    family = family_of(model, words)
    lm = VideoLM(family.backbone)
    index = None if kept is None else torch.tensor(kept)
    conversations = replace(batch.conversations, kept=index)
    with torch.no_grad():
        u = family.encode(conversations.plans, 2)
        found = family.answer(u, conversations, ratio=None, compressor="none")
    shown = render(batch.scenes).frames.numpy()
    chosen = torch.arange(PAIRS * 81) if index is None else index
    losses, lengths = [], []
    for row, (scene, ((question, answer),)) in enumerate(batch.asked):
        session = lm.open(shown[conversations.video[row]], source_fps=scene.fps)
        encoded = session.encoded
        torch.testing.assert_close(family.cells(u)[conversations.video[row]].flatten(1, 2), encoded.features)
        prompt = lm.backbone.conversation([(question, answer)], session.video)
        features = lm.backbone.features(encoded, get("none"), conditioned=False)
        video = lm.backbone.project(Compressed.kept(features, chosen), get("none"), encoded)
        inputs, labels = lm.backbone.place_each([prompt], [video])
        torch.testing.assert_close(found.tokens[row], video.tokens)
        placed = family.positions(len(conversations.prefix), inputs.length, chosen)
        assert torch.equal(placed, inputs.arguments["position_ids"][1:, 0])
        with torch.no_grad():
            hidden = model.model(**inputs.arguments, use_cache=False)[0]
        own = model.loss_function(logits=model.lm_head(hidden), labels=labels, vocab_size=len(words))
        losses.append(own.item())
        lengths.append(int((labels != -100).sum()))
    expected = sum(a * b for a, b in zip(losses, lengths, strict=True)) / sum(lengths)
    assert found.language.item() == pytest.approx(expected, rel=1e-4)


def test_questions_are_found_in_the_prompt(words, batch):
    conversations = batch.conversations
    for row, (_, ((question, answer),)) in enumerate(batch.asked):
        asked = words.decode(conversations.ids[row][conversations.question_mask[row]])
        assert question.strip() in asked
        labels = conversations.labels[row]
        assert words.decode(labels[labels != -100]).startswith(answer)


def test_labels_of_a_pair_are_those_of_its_frames(model, words):
    family = family_of(model, words)
    seen = torch.tensor([[[0, -1], [1, 0], [0, 0]]], dtype=torch.int8)  # three frames of two names
    assert family.merged_names(seen).tolist() == [[[1, -1], [0, 0]]]
    assert family.merged_flags(torch.tensor([[True, False, False, False, True]])).tolist() == [[True, False, True]]


def test_every_task_of_the_recipe_has_its_losses(model, words):
    phases = [replace(phase, steps=4, batches=((2, 16),)) for phase in CURRICULUM.phases[2:3]]
    phases = [Phase("patches", 1, ((2, 2),), (1e-3, 1e-3)), Phase("pictures", 1, ((2, 3),), (1e-3, 1e-3)), *phases]
    curriculum = Curriculum((*phases, Phase("dropped", 2, ((2, 16),), (1e-3, 0.0))))
    trained = TrainingModel(model.train(), words, "none")
    batches = batches_of(curriculum, words, trained.family)
    terms = []
    for step in (0, 1, 2, curriculum.steps - 1):
        losses, _ = trained.losses(batches[step])
        assert all(torch.isfinite(loss) for loss in losses.values())
        terms.append(set(losses))
    assert terms[0] == {"patches", "naming"}
    assert {"language", "naming", "told", "chosen"} <= terms[1]
    assert {"language", "naming", "told", "recalled", "sought", "allotted"} <= terms[2]
    assert {"language", "recalled"} <= terms[3]


def test_a_short_run_learns_and_its_export_answers(narrow, tmp_path, monkeypatch):
    """The loss on patches falls; the exported folder loads, answers and takes the registry's methods."""
    for module in ("train", "log"):
        monkeypatch.setattr(f"aviot_lab.demo_model.{module}.REPORT", 1)
    phases = Phase("patches", 12, ((8, 4),), (5e-3, 2e-3)), Phase("dropped", 2, ((2, 16),), (1e-3, 0.0))
    curriculum = Curriculum(phases, warmup=1)
    cpu = {"device": torch.device("cpu"), "architecture": "qwen", "compressor": "none", "unexamined": True}
    how = training.TrainOptions(curriculum="yardstick", **cpu)
    training.train(tmp_path / "run", curriculum, how)
    lines = training.read_rows(tmp_path / "run" / LOG)
    losses = [line["patches"] + line["naming"] for line in lines if "patches" in line]
    assert sum(losses[-3:]) < 0.85 * sum(losses[:3])
    with pytest.raises(ValueError, match="run was trained with qwen; go on with --architecture qwen, or name another"):
        training.train(tmp_path / "run", curriculum, replace(how, architecture="llava"))
    export(tmp_path / "run", tmp_path / "model", curriculum)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "of Qwen2-VL's classes" in card
    assert "**A yardstick for methods that need no training**" in card
    assert "train RUN --architecture qwen --curriculum yardstick`" in card
    lm = VideoLM.from_pretrained(tmp_path / "model", device="cpu")
    assert lm.backbone.family == "qwen2-vl"
    lm.backbone.model.to(torch.float32)
    world = World(WorldConfig())
    settings = [FieldSetting("none"), FieldSetting("random-tokens", 0.25), FieldSetting("uniform", 0.25)]
    record = FieldEvaluator(lm, settings).answer(world, [world.scene("test", 0, FRAMES)])
    assert record["refused"] == {}
    assert set(record["entered"]["uncompressed"]) == {PAIRS * 81}
    assert set(record["entered"]["random-tokens 0.25"]) == {PAIRS * 81 // 4}
    forced = [("none", None), ("random-tokens", 4.0)]
    found = accuracy(
        lm.backbone.model, lm.backbone.tokenizer, world, split="test", scenes=[0], frames=FRAMES, settings=forced
    )
    assert sum(map(len, found[forced[0]].values())) == len(record["scenes"])
    with pytest.raises(ValueError, match="is examined with random-tokens, got 'aviot'; use aviot reproduce"):
        accuracy(
            lm.backbone.model,
            lm.backbone.tokenizer,
            world,
            split="test",
            scenes=[0],
            frames=FRAMES,
            settings=[("aviot", 4.0)],
        )
