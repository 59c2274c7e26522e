"""The losses on relevance are about what the compressor computes, and about the frames that show what is asked for."""

from dataclasses import replace

import pytest
import torch

from aviot.config import CompressorConfig
from aviot.methods.aviot.allocation import allocation_probabilities
from aviot.methods.aviot.segments import Segments
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.batches import BatchWriter, TrainingBatches, as_prompt
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.learning import encode
from aviot_lab.demo_model.relevance import QuestionFrames, allocation_loss, question_frames, relevance, relevance_loss
from aviot_lab.demo_model.training_model import TrainingModel
from aviot_lab.world import World, WorldConfig

FRAMES = 16


def batch_about(tokenizer, scenes, world):
    """A row for each scene, with all its questions, and the frames that they are about."""
    asked = [(scene, list(world.questions(scene))) for scene in scenes]
    turns = [(scene, [as_prompt(question, open_ended=True) for question in questions]) for scene, questions in asked]
    batch = BatchWriter(tokenizer).conversations(turns)
    return batch, question_frames(batch.question_mask, batch.video, asked), asked


def test_what_flashes_up_is_in_its_frames(tokenizer):
    world = World(WorldConfig(families=("brief",), plots=1))
    scenes = [world.scene("train", number, FRAMES) for number in range(5)]
    _, asked_frames, asked = batch_about(tokenizer, scenes, world)
    for shown, (_, (question,)) in zip(asked_frames.shown, asked, strict=True):
        (evidence,) = question.evidence
        assert shown.nonzero().flatten().tolist() == list(range(evidence.start, evidence.stop))


def test_what_is_not_there_is_in_no_frames(tokenizer):
    world = World(WorldConfig(families=("existence",), plots=1))
    scenes = [world.scene("train", number, FRAMES) for number in range(12)]
    _, asked_frames, asked = batch_about(tokenizer, scenes, world)
    there = [row for row, (_, (question,)) in enumerate(asked) if question.answer == "yes"]
    assert 0 < len(there) < len(asked)
    assert asked_frames.row.tolist() == there
    absent = asked[next(row for row in range(len(asked)) if row not in there)]
    batch = BatchWriter(tokenizer).conversations([(absent[0], [as_prompt(absent[1][0], open_ended=True)])])
    assert question_frames(batch.question_mask, batch.video, [absent]) is None


def test_descriptions_are_skipped_and_later_questions_found(tokenizer):
    world = World(WorldConfig(plots=2, families=("colour", "where")))
    scene = world.scene("train", 3, FRAMES)
    first, second = world.questions(scene)
    turns = [as_prompt(first, open_ended=True), ("Say anything.", "Something."), as_prompt(second, open_ended=True)]
    batch = BatchWriter(tokenizer).conversations([(scene, turns)])
    asked_frames = question_frames(batch.question_mask, batch.video, [(scene, [first, None, second])])
    said = [tokenizer.decode(batch.ids[0][tokens]).strip() for tokens in asked_frames.tokens]
    assert said == [first.text, second.text]


def test_it_is_what_the_compressor_computes(tokenizer):
    world = World(WorldConfig(plots=1))
    scenes = [world.scene("train", number, FRAMES) for number in range(3)]
    batch, asked_frames, _ = batch_about(tokenizer, scenes, world)
    model = new_model(tokenizer, 0).eval()
    with torch.no_grad():
        path, embeds = model.model, model.get_input_embeddings()(batch.ids)
        videos = path.prepare(encode(model, batch.plans, batch.videos))
        frames = path.connector.frame_means(videos.x.flatten(0, 1)).unflatten(0, videos.x.shape[:2])
        found = relevance(frames, embeds, asked_frames)
        asks = batch.question_mask[..., None].float()
        means = ((embeds * asks).sum(1) / asks.sum(1))[asked_frames.row]
        features = path.features_of(videos.for_prompts(tuple(asked_frames.video.tolist())))
        computed = path.method("aviot")._question_inputs(features, means)["relevance"]
    torch.testing.assert_close(found, computed, atol=1e-5, rtol=0)


def test_the_loss_teaches_frames_and_words(tokenizer):
    """The compressor passes relevance no gradient: these losses alone move what it is made of."""
    phase = Phase("whole", steps=1, batches=((2, FRAMES),), rates=(1e-3, 1e-3))
    training_model = TrainingModel(new_model(tokenizer, 0), tokenizer, "aviot")
    terms, shares = training_model.losses(TrainingBatches(Curriculum((phase,)), tokenizer)[0])
    assert 0 <= shares["sought_right"] <= 1
    terms["sought"].backward()
    path = training_model.model.model
    for weight in (path.connector.projector[0].weight, training_model.model.get_input_embeddings().weight):
        assert weight.grad.abs().sum() > 0


def test_the_loss_is_least_where_the_shown_frames_stand_out(tokenizer):
    world = World(WorldConfig(families=("colour",), plots=1))
    scenes = [world.scene("train", number, FRAMES) for number in range(4)]
    batch, asked_frames, _ = batch_about(tokenizer, scenes, world)
    embeds = torch.randn(len(scenes), batch.ids.shape[1], 8)
    weights = asked_frames.tokens.float()
    questions = torch.einsum("nl,nld->nd", weights, embeds) / weights.sum(1, True)
    frames = torch.where(asked_frames.shown[..., None], questions[:, None], -questions[:, None])
    found = relevance(frames, embeds, asked_frames)
    loss, right = relevance_loss(found, asked_frames)
    other, wrong = relevance_loss(found, replace(asked_frames, shown=~asked_frames.shown))
    assert (right, wrong) == (1, 0)
    torch.testing.assert_close(loss, asked_frames.shown.sum(1).float().log().mean(), atol=1e-4, rtol=0)
    assert other > loss + 10


@pytest.mark.parametrize("scale", [0.02, 0.2, 1.0])  # of cosines, whose segment means then deviate by half as much
def test_segments_are_allotted_as_the_compressor_does_it(scale):
    """The loss is the cross entropy of the compressor's own probabilities, with the shares of what is shown."""
    torch.manual_seed(0)
    found = (scale * torch.randn(6, 18, dtype=torch.float64)).requires_grad_()
    shown = torch.rand(6, 18) > 0.6
    shown[5] = True  # nothing to allot: not counted
    asked_frames = frames_of(shown)
    config = CompressorConfig()
    loss, right = allocation_loss(found, asked_frames, config)
    segments = Segments.of(18, 9, config.segments)
    weight, temperature = config.allocation.relevance_weight, config.allocation.final_temperature
    given = allocation_probabilities(torch.zeros(5, 4), segments.mean(found[:5]), weight, temperature)
    parts = [part.sum(1) for part in shown[:5].double().split((5, 5, 4, 4), 1)]
    goal = torch.stack(parts, 1) / shown[:5].sum(1, keepdim=True)
    torch.testing.assert_close(loss, -(goal * given.log()).sum(1).mean(), rtol=1e-5, atol=0)
    torch.testing.assert_close(right, torch.minimum(given, goal).sum(1).mean(), rtol=1e-5, atol=0)
    loss.backward()
    assert found.grad.isfinite().all()
    assert found.grad[:5].abs().sum(1).min() > 0
    assert not found.grad[5].any()


def test_an_allotment_of_nothing_teaches_nothing():
    """Relevance that is the same everywhere, and what is shown everywhere."""
    flat = torch.zeros(2, 16, requires_grad=True)
    shown = torch.zeros(2, 16, dtype=torch.bool)
    shown[:, :4] = True
    for asked_frames in (frames_of(shown), frames_of(torch.ones_like(shown))):
        loss, _ = allocation_loss(flat, asked_frames, CompressorConfig())
        loss.backward()
        assert flat.grad.isfinite().all()
    assert loss == 0


def frames_of(shown):
    """Questions of three tokens each, about videos that show what they seek in these frames."""
    number = torch.arange(len(shown))
    return QuestionFrames(number, torch.ones(len(shown), 3, dtype=torch.bool), number, shown)
