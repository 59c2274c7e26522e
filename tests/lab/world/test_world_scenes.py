"""Scenes and questions: right, reproducible, and no split's combination in another."""

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from solver import solve

from aviot.backbones.llava_video.prompt import question_range
from aviot_lab.world import FAMILIES, SPLITS, World, WorldConfig, tracks, vocabulary
from aviot_lab.world.grammar import CORES, all_answers, wordings
from aviot_lab.world.words import RESIDUES, belongs, number_of

WORLD = World(WorldConfig(seed=3))


def scenes(split, count, frames=None, world=WORLD, first=0):
    return [world.scene(split, index, frames) for index in range(first, first + count)]


@pytest.mark.parametrize(("split", "frames"), [("train", 16), ("train", 64), ("validation", 40), ("test", 224)])
def test_every_answer_is_what_the_frames_show(split, frames):
    asked = Counter()
    for scene in scenes(split, 152, frames):
        for question in WORLD.questions(scene):
            assert solve(scene, question) == question.answer, (scene.index, question)
            asked[question.family] += 1
    assert set(asked) == set(FAMILIES)


def test_words_that_ask_something_else_are_noticed(monkeypatch):
    """Otherwise that answers agree would say nothing of the sentences."""
    world = World(WorldConfig(seed=3, families=("order",), plots=1))
    exchange = {"first": "second", "second": "first"}
    cores = [re.sub(r"{(first|second)", lambda name: "{" + exchange[name[1]], core) for core in CORES["order"]]
    monkeypatch.setitem(CORES, "order", tuple(cores))
    for scene in scenes("train", 30, world=world):
        assert solve(scene, world.question(scene)) != world.question(scene).answer
    monkeypatch.setitem(CORES, "repetition", CORES["count"])
    world = World(WorldConfig(seed=3, families=("repetition",), plots=1))
    for scene in scenes("train", 10, world=world):
        with pytest.raises(AssertionError, match="repetition is not asked about in"):
            solve(scene, world.question(scene))


def test_evidence_is_within_the_video_and_shows_its_actor():
    for scene in scenes("train", 57):
        truth = tracks(scene)
        for question in WORLD.questions(scene):
            assert question.evidence or (question.family, question.answer) == ("existence", "no")
            for seen in question.evidence:
                assert 0 <= seen.start < seen.stop <= scene.frames
                assert truth.visible[seen.actor, seen.start : seen.stop].all()


def test_scenes_follow_from_their_numbers_alone():
    again = World(WorldConfig(seed=3))
    assert scenes("train", 5) == scenes("train", 5, world=again)[:5]
    assert again.scene("train", 4) == WORLD.scene("train", 4)
    different = [WORLD.scene("train", 4), WORLD.scene("test", 4), WORLD.scene("train", 4 + len(FAMILIES))]
    different += [WORLD.scene("train", 4, 32), World(WorldConfig(seed=4)).scene("train", 4)]
    assert len({scene.actors for scene in different}) == len(different)


def test_a_known_scene_stays_the_same():
    scene = WORLD.scene("test", 7)
    assert scene.plots[0].combination == ("count", "cross", "framed")
    assert scene.plots[1].combination == ("touched", "circle", "green", "striped")
    assert WORLD.question(scene).text == "Look closely: how often did the colour of the cross change?"


def test_splits_share_no_combination_and_no_wording():
    combinations, words = defaultdict(set), defaultdict(set)
    for split in SPLITS:
        for scene in scenes(split, 300):
            for question in WORLD.questions(scene):
                combinations[split].add(question.combination)
                words[split].add(question.wording)
                assert belongs(split, number_of(question.combination[1:]))
    for kind in (combinations, words):
        assert not kind["train"] & kind["test"]
        assert not kind["train"] & kind["validation"]
        assert not kind["validation"] & kind["test"]
    assert sorted(r for residues in RESIDUES.values() for r in residues) == list(range(5))  # one split for any sum


def test_every_opening_and_core_is_known_from_training():
    for place in (0, 1):
        assert {pair[place] for pair in wordings("train")} == set(range(5))


def test_options_hold_the_answer_once_and_prompts_keep_the_question():
    for scene in scenes("test", 38):
        for question in WORLD.questions(scene):
            assert question.options.count(question.answer) == 1
            assert len(question.options) == len(set(question.options)) == min(4, len(question.candidates))
            assert set(question.options) <= set(question.candidates) <= set(all_answers())
            low, high = question_range(question.multiple_choice)
            assert question.multiple_choice[low:high].startswith(question.text)
            assert question.multiple_choice[low:high].endswith(question.options[-1])
            low, high = question_range(question.open)
            assert question.open[low:high] == question.text


def test_further_numbers_ask_the_same_in_other_words():
    scene = WORLD.scene("train", 0)
    again = [WORLD.question(scene, len(scene.plots) * turn) for turn in range(12)]
    assert len({question.combination for question in again}) == 1
    assert len({question.text for question in again}) > 3


def test_vocabulary_has_every_word_that_is_asked_or_answered():
    words = {word for text in vocabulary() for word in text.split()}
    for scene in scenes("test", 57):
        for question in WORLD.questions(scene):
            assert set(question.multiple_choice.split()) | set(question.answer.split()) <= words


def test_the_example_of_the_documents_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "world.md").read_text()
    names = {}
    monkeypatch.chdir(tmp_path)
    exec(compile(re.search(r"```python\n(.*?)```", text, re.S).group(1), "world.md", "exec"), names)
    words = set(re.findall(r"\w+", " ".join(names["texts"])))
    assert f"# {len(names['texts']):,} with all {len(words)} words" in text
    assert (tmp_path / "scene.mp4").stat().st_size > 0


def test_a_family_is_main_as_often_as_any_other():
    main = Counter(scene.plots[0].family for scene in scenes("train", 2 * len(FAMILIES)))
    assert set(main.values()) == {2}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frames": (8,)}, "at least 16 frames"),
        ({"frames": ()}, "frames must"),
        ({"families": ("smell",)}, "families must be some of"),
        ({"families": ()}, "families must be some of"),
        ({"size": 107}, "size must be even"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"noise": 100}, "noise must lie"),
    ],
)
def test_configs_that_make_no_sense_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        WorldConfig(**change)


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        WORLD.scene("exam", 0)
    with pytest.raises(ValueError, match="index must be at least 0"):
        WORLD.scene("train", -1)
    with pytest.raises(ValueError, match="number must be at least 0"):
        WORLD.question(WORLD.scene("train", 0), -1)
    with pytest.raises(ValueError, match="at least 16 frames"):
        WORLD.scene("train", 0, frames=4)
