"""Training with tokens missing: the patterns, and the same decoder input as a method on tokens gives at inference."""

from dataclasses import replace

import pytest
import torch

from aviot import Budget, VideoLM
from aviot.methods import Compressed, TokenMethod
from aviot.methods.registry import get
from aviot.scenes.draws import Draws
from aviot_lab.demo_model import train as training
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.architecture import TOKEN_GRID, new_model, small_processor
from aviot_lab.demo_model.batches import BatchWriter, TrainingBatches
from aviot_lab.demo_model.curriculum import CURRICULUM, YARDSTICK, Curriculum, Phase
from aviot_lab.demo_model.dropping import MOST_DROPPED, draw_kept
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.demo_model.log import LOG
from aviot_lab.demo_model.state import load_weights
from aviot_lab.world import World, WorldConfig, render

FRAMES = 16


class Kept(TokenMethod):
    """Keeps the tokens that it was made with."""

    name = "kept"

    def __init__(self, index):
        self.index = index

    def compress(self, video, *, question, budget):
        return Compressed.kept(video, self.index)


@pytest.fixture
def model(narrow, tokenizer):
    torch.manual_seed(0)
    model = new_model(tokenizer, seed=1).eval()
    with torch.no_grad():
        model.model.connector.row_separator.normal_()
    return model


def test_patterns_are_tokens_frames_and_blocks_at_all_shares():
    rows, columns = TOKEN_GRID
    total, whole_frames, boxes, shares = FRAMES * rows * columns, 0, 0, []
    for number in range(200):
        kept = draw_kept(Draws("test", number), FRAMES, TOKEN_GRID)
        assert torch.equal(kept, kept.unique())  # ascending, each once
        assert 0 <= kept.min() <= kept.max() < total
        shares.append(1 - len(kept) / total)
        mask = torch.zeros(total, dtype=torch.bool)
        mask[kept] = True
        frames = mask.view(FRAMES, -1).float().mean(1)
        whole_frames += int(((frames > 0) & (frames < 1)).sum() <= 1)
        grid = mask.view(FRAMES, rows, columns)
        alike = (grid[..., 1:] == grid[..., :-1]).float().mean()  # of neighbours: by chance p^2 + (1-p)^2
        chance = shares[-1] ** 2 + (1 - shares[-1]) ** 2
        boxes += int(alike > chance + 0.1)
    assert min(shares) < 0.03
    assert MOST_DROPPED - 0.03 < max(shares) <= MOST_DROPPED + 1e-3
    assert 0.4 < sum(shares) / len(shares) < 0.55
    assert 40 < whole_frames < 110
    assert boxes > 60
    again = draw_kept(Draws("test", 7), FRAMES, TOKEN_GRID)
    assert torch.equal(again, draw_kept(Draws("test", 7), FRAMES, TOKEN_GRID))


@pytest.mark.parametrize("index", [range(0, 16 * 81, 7), range(81 * 4, 81 * 9), range(16 * 81), [5]])
def test_a_dropped_video_is_placed_as_at_inference(model, tokenizer, index):
    """The decoder reads what a session gives it for the same tokens: tokens, separators and their order."""
    kept = torch.tensor(index)
    world, scenes = World(WorldConfig()), (0, 1)
    batch = question_batch(BatchWriter(tokenizer), world, "validation", scenes, FRAMES)
    with torch.no_grad():
        u = encode(model, batch.conversations.plans, len(scenes))
        found = answer(model, u, replace(batch.conversations, kept=kept), ratio=None)
    assert found.compression is None
    lm = VideoLM(model, small_processor(tokenizer))
    shown = render(batch.scenes).frames.numpy()
    for row, (scene, turns) in enumerate(batch.asked):
        session = lm.open(shown[batch.conversations.video[row]], source_fps=scene.fps)
        read = session.compress(turns[0][0], budget=Budget(keep=1.0), method=Kept(kept))
        torch.testing.assert_close(found.tokens[row], read.tokens, atol=1e-5, rtol=1e-5)


def test_random_tokens_are_examined_as_the_method_answers(model, tokenizer):
    batch = question_batch(BatchWriter(tokenizer), World(WorldConfig()), "validation", (2,), FRAMES)
    with torch.no_grad():
        u = encode(model, batch.conversations.plans, 1)
        found = answer(model, u, batch.conversations, ratio=4.0, compressor="random-tokens")
    session = VideoLM(model, small_processor(tokenizer)).open(render(batch.scenes).frames[0].numpy(), source_fps=2)
    read = session.compress("?", budget=4, method="random-tokens")
    assert len(read.tokens) <= 16 * 90 / 4
    torch.testing.assert_close(found.tokens[0], read.tokens, atol=1e-5, rtol=1e-5)
    others = [get("random-tokens"), type(get("random-tokens"))(seed=1)]
    drawn = [session.compress("?", budget=4, method=method).made.mixture.indices for method in others]
    assert not torch.equal(*drawn)


def test_the_yardstick_differs_from_the_demo_model_in_its_last_task_alone():
    assert YARDSTICK.phases[:-1] == CURRICULUM.phases[:-1]
    assert replace(YARDSTICK.phases[-1], task="compressed") == CURRICULUM.phases[-1]
    assert YARDSTICK.begin_of_fewer() == CURRICULUM.begin_of_fewer() == CURRICULUM.begin_of("compressed")


def test_batches_with_tokens_missing_ask_all_questions_about_a_video_together(tokenizer):
    curriculum = Curriculum((Phase("dropped", 8, ((2, 16), (2, 32)), (1e-3, 0.0)),))
    batches = TrainingBatches(curriculum, tokenizer)
    found = [batches[step] for step in range(8)]
    dropped = [batch for batch in found if not batch.whole]
    assert 4 <= len(dropped) < 8
    for batch in dropped:
        assert batch.ratio is batch.histories is batch.question_frames is None
        assert batch.kept is not None
        assert batch.video.tolist() == [0, 1]
        assert batch.recall is not None


def test_a_run_trains_on_dropped_tokens_and_a_checkpoint_is_adapted(model, tokenizer, tmp_path, monkeypatch):
    """The second run begins with the weights of a checkpoint, learns answers alone, and leaves the compressor alone."""
    monkeypatch.setattr(training, "REPORT", 1)
    monkeypatch.setattr("aviot_lab.demo_model.log.REPORT", 1)
    curriculum = Curriculum((Phase("dropped", 3, ((2, 16),), (1e-2, 1e-3)),), warmup=1)
    cpu = {"device": torch.device("cpu"), "compressor": "none", "unexamined": True}
    training.train(tmp_path / "twin", curriculum, training.TrainOptions(curriculum="yardstick", **cpu))
    lines = [line for line in training.read_rows(tmp_path / "twin" / LOG) if "language" in line]
    assert any("recalled" in line for line in lines)
    checkpoint = tmp_path / "checkpoint"
    model.save_pretrained(checkpoint)
    small_processor(tokenizer).save_pretrained(checkpoint)
    how = training.TrainOptions(curriculum="adapted", weights=checkpoint, **cpu)
    training.train(tmp_path / "adapted", curriculum, how)
    first, *_ = lines = training.read_rows(tmp_path / "adapted" / LOG)
    assert (first["curriculum"], len(first["weights"])) == ("adapted", 64)
    assert all("recalled" not in line for line in lines)
    again = new_model(tokenizer, seed=5)
    assert load_weights(tmp_path / "adapted", again, "model.") == 3
    before, after = model.state_dict(), again.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert "model.language_model.layers.0.mlp.up_proj.weight" in moved
    assert not {name for name in moved if "compressor" in name or "vision_tower" in name}
    with pytest.raises(ValueError, match="adapted was trained with adapted; go on with --curriculum adapted"):
        training.train(tmp_path / "adapted", curriculum, training.TrainOptions(curriculum="yardstick", **cpu))


def test_a_curriculum_without_compression_takes_no_compressor():
    assert training.compressor_of(CURRICULUM, None) == "aviot"
    assert training.compressor_of(CURRICULUM, "uniform") == "uniform"
    assert training.compressor_of(YARDSTICK, None) == "none"
    with pytest.raises(ValueError, match="compresses nothing; leave --compressor uniform out"):
        training.compressor_of(YARDSTICK, "uniform")
    settings = training.settings_after(YARDSTICK, YARDSTICK.steps, "none")
    assert settings == [("none", None), *(("random-tokens", ratio) for ratio in (2.0, 4.0, 10.0, 20.0))]
