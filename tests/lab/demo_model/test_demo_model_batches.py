"""Training batches of the demo model: tokens, targets, and the order they come in."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch

from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES
from aviot_lab.demo_model.batches import DESCRIPTION_WEIGHT, BatchWriter, FrameBatch, TrainingBatches
from aviot_lab.demo_model.curriculum import CURRICULUM, Curriculum, Phase
from aviot_lab.demo_model.masks import answer_spans
from aviot_lab.demo_model.naming import NAMES, NamingLoss, names_of_cells, visible_names
from aviot_lab.demo_model.patches import KINDS, UNLABELLED, PatchHead, objects_of, patch_targets
from aviot_lab.demo_model.tokenizer import TURN_END
from aviot_lab.world import World, WorldConfig, descriptions, draw, frame_descriptions, own_looks, render, tracks
from aviot_lab.world.description import size_word
from aviot_lab.world.words import belongs, number_of

TAUGHT = Curriculum(
    (
        Phase("patches", steps=2, batches=((3, 2),), rates=(2e-3, 1e-3)),
        Phase("pictures", steps=2, batches=((4, 2),), rates=(1e-3, 1e-3)),
        Phase("whole", steps=3, batches=((2, 16),), rates=(1e-3, 5e-4)),
        Phase("compressed", steps=8, batches=((2, 16), (2, 32)), rates=(5e-4, 0.0)),
    ),
    warmup=4,
)


@pytest.fixture(scope="module")
def batches(tokenizer):
    return TrainingBatches(TAUGHT, tokenizer)


@pytest.fixture(scope="module")
def world():
    return World(WorldConfig())


def test_any_text_survives_the_tokenizer(tokenizer):
    for text in ("Was there a red star?", "31.50s,32.00s.", "Ünïcode 漢字 isn't 12345.678? 😀\n\n  a", "x" * 300):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_words_of_the_world_are_single_tokens(tokenizer):
    for word in NAMES:
        assert len(tokenizer(f" {word}")["input_ids"]) == 1


def test_phases_follow_each_other():
    assert TAUGHT.steps == 15
    assert [TAUGHT.at(step)[0].task for step in (0, 1, 2, 4, 7, 14)] == [
        "patches",
        "patches",
        "pictures",
        "whole",
        "compressed",
        "compressed",
    ]
    assert TAUGHT.at(6)[1] == 2
    assert TAUGHT.rate(0) == pytest.approx(2e-3 / 4)
    assert TAUGHT.rate(11) == pytest.approx(2.5e-4)
    firsts = [TAUGHT.first_video(step) for step in range(15)]
    assert firsts == [0, 3, 6, 10, 14, 16, 18, *range(20, 36, 2)]
    with pytest.raises(ValueError, match="step must lie in 0 to 14, got 15"):
        TAUGHT.at(15)


def test_every_step_has_a_batch_of_its_task(batches):
    kinds = [batches[step] for step in range(len(batches))]
    assert [isinstance(batch, FrameBatch) for batch in kinds] == [True, True] + 13 * [False]
    assert [batch.ratio for batch in kinds[2:7]] == 5 * [None]
    ratios = [batch.ratio for batch in kinds[7:]]
    assert any(ratio is None for ratio in ratios)
    assert all(2 <= ratio <= 10 for ratio in ratios if ratio is not None)
    assert kinds[2].visible_names.shape[1] == 2  # frames


def test_a_step_is_the_same_batch_whenever_it_is_made(batches, tokenizer):
    again = TrainingBatches(TAUGHT, tokenizer)[9]
    assert torch.equal(again.ids, batches[9].ids)
    assert not torch.equal(again.ids, batches[10].ids)


def test_rows_ask_and_supervise_what_they_say(world, tokenizer):
    scenes = [world.scene("train", number, 16) for number in range(3)]
    questions = [world.question(scene) for scene in scenes]
    asked = [(scene, [(q.multiple_choice, q.letter)]) for scene, q in zip(scenes, questions, strict=True)]
    batch = BatchWriter(tokenizer).conversations(asked, ratio=4.0)
    assert batch.video.tolist() == [0, 1, 2]
    for row, question in enumerate(questions):
        text = tokenizer.decode(batch.ids[row][batch.question_mask[row]])
        assert text.startswith(question.text)
        assert question.options[-1] in text
        assert "letter from the given choices" not in text
        supervised = batch.labels[row][batch.labels[row] != IGNORED]
        assert tokenizer.decode(supervised) == question.letter + TURN_END


def test_questions_about_one_scene_share_its_video(world, tokenizer):
    scene = world.scene("train", 3, 16)
    rows = [(scene, [(q.open, q.answer)]) for q in world.questions(scene)]
    batch = BatchWriter(tokenizer).conversations(rows)
    assert batch.videos == 1
    assert batch.video.tolist() == [0] * len(rows)
    assert torch.equal(draw(batch.plans, "cpu"), render([scene]).frames[0])


def test_descriptions_weigh_less_than_an_answer(batches, tokenizer):
    kinds = set()
    for batch in (batches[step] for step in range(2, len(batches))):
        assert torch.equal(batch.weights > 0, batch.labels != IGNORED)
        for labels, weights in zip(batch.labels, batch.weights, strict=True):
            for first, end in answer_spans(labels.tolist()):
                said = tokenizer.decode(labels[first:end]).removesuffix(TURN_END)
                (weight,) = weights[first:end].unique().tolist()
                if ";" in said or len(said) == 1:  # a description, or a letter
                    assert weight == pytest.approx(1.0 if len(said) == 1 else DESCRIPTION_WEIGHT)
                    kinds.add(len(said) == 1)
        if batch.ratio is not None:
            assert set(batch.weights.unique().tolist()) == {0.0, 1.0}
    assert kinds == {True, False}


def test_patches_are_labelled_with_what_covers_them(world):
    """Against a loop over patches and actors."""
    scenes, frames = [world.scene("train", number, 16) for number in (4, 11)], [2, 9]
    looks, place = patch_targets(objects_of(scenes, frames), torch.device("cpu"))
    assert looks.shape == (3, 4, 729)
    for picture, (scene, frame) in enumerate((s, f) for s in scenes for f in frames):
        truth = tracks(scene, [frame])
        order = sorted(range(len(scene.actors)), key=lambda i: scene.actors[i].front)
        for patch in range(0, 729, 5):
            x, y = (patch % 27 + 0.5) / 27, (patch // 27 + 0.5) / 27
            over = [
                i
                for i in order
                if truth.visible[i, 0] and np.hypot(truth.x[i, 0] - x, truth.y[i, 0] - y) < truth.size[i, 0]
            ]
            label = tuple(looks[:, picture, patch].tolist())
            if not over:
                assert label == KINDS
                continue
            own = own_looks(scene, truth)[over[-1], 0]
            words = tuple(int(word[over[-1], 0]) for word in (truth.shape, truth.colour, truth.texture))
            assert label == (words if own else (UNLABELLED,) * 3)
            assert place[picture, patch, 0].item() == pytest.approx((truth.x[over[-1], 0] - x) * 9, abs=1e-4)


def test_names_of_frames_and_of_cells_agree(world):
    """What a cell shows, its frame shows; and an object's cell has its six names."""
    for number in range(6):
        scene = world.scene("train", number, 64)
        truth = tracks(scene, [30])
        seen = visible_names([scene], [30])[0, 0]
        looks, place = patch_targets(objects_of([scene], [30]), torch.device("cpu"))
        cells = names_of_cells(looks, place, (27, 27), 3)[0]
        assert cells.shape == (81, len(NAMES))
        assert bool((cells.eq(1).any(0) <= seen.eq(1)).all())
        assert bool((cells.eq(UNLABELLED).all(-1) == cells.eq(UNLABELLED).any(-1)).all())
        assert set(cells.sum(-1).tolist()) <= {0, 6, UNLABELLED * len(NAMES)}
        own = own_looks(scene, truth)[:, 0]
        shapes = [SHAPES[truth.shape[i, 0]] for i in range(len(scene.actors)) if truth.visible[i, 0]]
        for i in np.flatnonzero(truth.visible[:, 0] & own):
            if shapes.count(SHAPES[truth.shape[i, 0]]) > 1 or truth.size[i, 0] > 0.2:
                continue
            expected = {
                SHAPES[truth.shape[i, 0]],
                COLOUR_NAMES[truth.colour[i, 0]],
                TEXTURES[truth.texture[i, 0]],
                size_word(truth.size[i, 0]),
                "bottom" if truth.y[i, 0] > 0.5 else "top",
                "right" if truth.x[i, 0] > 0.5 else "left",
            }
            assert {NAMES[n] for n in np.flatnonzero(seen == 1)} >= expected
            named = [{NAMES[n] for n in np.flatnonzero(cell == 1)} for cell in cells]
            assert all(names == expected for names in named if SHAPES[truth.shape[i, 0]] in names)


def test_names_are_labelled_for_own_looks_alone(world):
    """A frame has a name if something that is the split's own has it; of what only others have, nothing is said."""
    counted = {1: 0, 0: 0, UNLABELLED: 0}
    for number in range(12):
        scene = world.scene("train", number, 16)
        truth, seen = tracks(scene), visible_names([scene])[0]
        own = own_looks(scene, truth)
        for frame in range(0, 16, 3):
            names = {True: set(), False: set()}
            for i in np.flatnonzero(truth.visible[:, frame]):
                names[bool(own[i, frame])] |= {
                    SHAPES[truth.shape[i, frame]],
                    COLOUR_NAMES[truth.colour[i, frame]],
                    TEXTURES[truth.texture[i, frame]],
                    size_word(truth.size[i, frame]),
                    "bottom" if truth.y[i, frame] > 0.5 else "top",
                    "right" if truth.x[i, frame] > 0.5 else "left",
                }
            for name, label in zip(NAMES, seen[frame].tolist(), strict=True):
                assert label == (1 if name in names[True] else UNLABELLED if name in names[False] else 0)
                counted[label] += 1
    assert min(counted.values()) > 50


def test_descriptions_tell_the_truth_and_keep_to_their_split(world):
    for number in range(40):
        scene = world.scene("train", number, 64)
        by_shape = {actor.shape: actor for actor in scene.actors}
        for question, answer in descriptions(scene):
            actor = by_shape[question.removeprefix("Describe the ").removesuffix(".")]
            assert actor.colour[0][1] in answer.split(";")[0]
            assert belongs("train", number_of((actor.shape, actor.colour[0][1], actor.texture)))
            label = [part.partition(": ")[2] for part in answer.split("; ")[1:]]
            assert label.count("colour") == len(actor.colour) - 1
            assert not any(colour in part.split() for part in label for colour in COLOUR_NAMES)


def test_a_task_begins_after_the_phases_before_it():
    curriculum = Curriculum(
        (
            Phase("patches", steps=3, batches=((1, 1),), rates=(1e-3, 1e-3)),
            Phase("whole", steps=2, batches=((1, 16),), rates=(1e-3, 1e-3)),
            Phase("whole", steps=4, batches=((1, 32),), rates=(1e-3, 1e-3)),
        )
    )
    assert [curriculum.begin_of(task) for task in ("patches", "whole", "compressed")] == [0, 3, 9]


def test_practice_is_of_what_is_learnt_last(tokenizer):
    phase = Phase("whole", steps=6, batches=((1, 16),), rates=(1e-3, 1e-3), practice=0.5, practised=("count",))
    batches = TrainingBatches(Curriculum((phase,)), tokenizer)
    worlds = (batches.world, World(WorldConfig(families=("count",))))
    shown = [batches[step].visible_names for step in range(6)]
    for world, kind in zip(worlds, ("any", "practice"), strict=True):
        scenes = [world.scene("train", batches.curriculum.first_video(step), 16) for step in range(6)]
        seen = [torch.equal(visible_names([scene]), one) for scene, one in zip(scenes, shown, strict=True)]
        assert 0 < sum(seen) < 6, kind


def test_frame_descriptions_tell_what_frames_show(world):
    named = described = 0
    for number in range(60):
        scene = world.scene("validation", number, 16)
        for frames in ([8], [4, 11]):
            truth = tracks(scene, frames)
            visible = [i for i in range(len(scene.actors)) if truth.visible[i].all()]
            for question, answer in frame_descriptions(scene, frames):
                if question.startswith("Name"):
                    (which,) = [i for i in visible if COLOUR_NAMES[truth.colour[i, 0]] == question.split()[2]]
                    assert answer == SHAPES[truth.shape[which, 0]]
                    named += 1
                    continue
                shape = question.removeprefix("Describe the ").removesuffix(".")
                (which,) = [i for i in visible if SHAPES[truth.shape[i, 0]] == shape]
                states = answer.split("; ")
                assert len(states) == len(frames)
                described += len(frames) == 2
                for t, state in enumerate(states):
                    words = shape, COLOUR_NAMES[truth.colour[which, t]], TEXTURES[truth.texture[which, t]]
                    assert belongs("validation", number_of(words))
                    assert words[1] in state
                    assert size_word(truth.size[which, t]) in state
                    assert ("left" in state) == (truth.x[which, t] <= 0.5)
    assert named > 10
    assert described > 10


def test_every_batch_is_of_the_training_split(tokenizer, monkeypatch):
    """Of each phase that the package's model was taught, with practice and without; nothing else draws a scene."""
    drawn, scene_of = [], World.scene

    def recorded(world, split, *which):
        drawn.append((split, scene_of(world, split, *which)))
        return drawn[-1][1]

    monkeypatch.setattr(World, "scene", recorded)
    few = tuple(replace(phase, batches=((2, phase.batches[0][1]),)) for phase in CURRICULUM.phases)
    taught = TrainingBatches(replace(CURRICULUM, phases=few), tokenizer)
    for end in accumulate(phase.steps for phase in few):
        for step in range(end - 6, end):
            before = len(drawn)
            taught[step]
            assert len(drawn) == before + 2
    assert {split for split, _ in drawn} == {"train"}
    assert len(drawn) == 12 * len(few)
    for _, scene in drawn:
        for plot in scene.plots:
            assert belongs("train", number_of(plot.combination[1:]))


def test_nothing_is_learnt_of_looks_that_are_another_splits(tokenizer):
    """Not by the reader of patches, not by the names; while their place counts, and what else is there."""
    torch.manual_seed(0)
    reader, features = PatchHead(8), torch.randn(1, 4, 8)
    place = torch.zeros(1, 4, 3)
    looks = torch.tensor(
        [[[2, UNLABELLED, KINDS[0], 1]], [[3, UNLABELLED, KINDS[1], 0]], [[1, UNLABELLED, KINDS[2], 4]]]
    )
    reader.loss(features, looks, place)[0].backward()
    all_gradients = [read.weight.grad.clone() for read in reader.looks]
    placed = reader.place.weight.grad.clone()
    reader.zero_grad()
    without = torch.tensor([0, 2, 3])
    reader.loss(features[:, without], looks[..., without], place[:, without])[0].backward()
    for grad, read in zip(all_gradients, reader.looks, strict=True):
        torch.testing.assert_close(grad, read.weight.grad)
    assert (placed - reader.place.weight.grad).abs().max() > 1e-3

    naming = NamingLoss(tokenizer)
    tokens, words = torch.randn(3, 8), torch.randn(len(tokenizer), 8, requires_grad=True)
    seen = torch.zeros(3, len(NAMES), dtype=torch.int8)
    seen[0, :2] = 1
    seen[1:, 2] = UNLABELLED
    seen[:, 0] = seen[:, 0].where(seen[:, 0] == 1, UNLABELLED)
    naming.loss(tokens, words, seen).backward()
    before = words.grad[naming.names]
    assert before[2].abs().sum() > 0  # of the frame that does not show it
    words.grad = None
    seen[0, 2] = UNLABELLED
    naming.loss(tokens, words, seen).backward()
    after = words.grad[naming.names]
    assert after[2].abs().sum() == 0
    assert all(after[name].abs().sum() > 0 for name in range(len(NAMES)) if name != 2)
