"""Neither the question alone nor a single frame helps. `benchmarks/world_balance.py` measures the same at length."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from aviot.scenes.draws import Draws
from aviot_lab.world import FAMILIES, World, WorldConfig
from aviot_lab.world.balance import frame_features, held_out_score, word_features

LIMIT = 3.5  # standard deviations of guessing: one run in four thousand is above by chance, and runs are repeatable
TEMPORAL = [family for family in FAMILIES if FAMILIES[family].temporal]
SPLITS = [pytest.param("train", marks=pytest.mark.slow), "test"]


@cache
def asked(split, family=None, count=320):
    """Scenes and their main questions: of one family beside all others, or of each in turn."""
    families = (family, *(f for f in FAMILIES if f != family)) if family else tuple(FAMILIES)
    world = World(WorldConfig(seed=17, families=families))
    scenes = [world.scene(split, i * len(families) if family else i, 64) for i in range(count)]
    return scenes, [world.question(scene) for scene in scenes]


@pytest.fixture(scope="module", params=["train", "test"])
def pool(request):
    return asked(request.param, count=1520)[1]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_uniform(family, split):
    _, questions = asked(split, family)
    expected = Counter()
    for question in questions:
        expected.update(dict.fromkeys(question.candidates, 1 / len(question.candidates)))
    found = Counter(question.answer for question in questions)
    square = sum((found[word] - mean) ** 2 / mean for word, mean in expected.items())
    freedom = len(expected) - 1
    assert square < freedom + 4 * (2 * freedom) ** 0.5 + 4, found


def test_letters_are_uniform(pool):
    for count in (2, 4):
        letters = Counter(question.letter for question in pool if len(question.options) == count)
        mean = sum(letters.values()) / count
        assert len(letters) == count
        assert all(abs(number - mean) < 4 * mean**0.5 for number in letters.values())


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_blind_learner_guesses(family, split):
    _, questions = asked(split, family)
    assert held_out_score(word_features([question.text for question in questions]), questions).excess < LIMIT
    lettered = word_features([question.multiple_choice for question in questions])
    assert held_out_score(lettered, questions, letters=True).excess < LIMIT


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_learner_finds_an_answer_in_the_words(family):
    """In three questions of four it is the first or the last by the alphabet, as the sentence has it."""
    _, questions = asked("train", family)
    answered = [
        replace(q, answer=(min, max)[q.wording[2] % 2](q.candidates)) if number % 4 else q
        for number, q in enumerate(questions)
    ]
    assert held_out_score(word_features([question.text for question in answered]), answered).excess > LIMIT


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("family", TEMPORAL)
def test_one_frame_does_not_help(family, split):
    scenes, questions = asked(split, family)
    draws = Draws("frames")
    for choose in (lambda scene: draws.below(scene.frames), lambda scene: scene.frames - 1):
        rows = [frame_features(s, q, choose(s)) for s, q in zip(scenes, questions, strict=True)]
        assert held_out_score(np.stack(rows), questions).excess < LIMIT


def test_the_same_learner_sees_what_one_frame_shows():
    scenes, questions = asked("train", "colour")
    rows = [frame_features(s, q, q.evidence[0].start) for s, q in zip(scenes, questions, strict=True)]
    assert held_out_score(np.stack(rows), questions).accuracy > 0.9
