"""Histories hold the answers: what is read off an object's last token is what its question asks."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES
from aviot_lab.demo_model.histories import (
    HISTORY,
    UNKNOWN,
    WAYS,
    HistoryHead,
    actor_histories,
    histories_at,
    histories_of,
)
from aviot_lab.demo_model.patches import back_to_front
from aviot_lab.world import World, WorldConfig, own_looks, tracks
from aviot_lab.world.description import SIZE_WORDS, size_word
from aviot_lab.world.words import CHANGES, NOTHING, NUMBERS, QUARTERS, belongs, number_of
from aviot_lab.world.world import GRID

LABEL = {name: number for number, name in enumerate(HISTORY)}
PLACE = LABEL["place"]  # known wherever an object is seen
SCENES = 12


def labelled(family: str, frames: int = 40):
    """Of scenes of one family: the plot, and its first subject's labels through the video."""
    world = World(WorldConfig(seed=3, families=(family,), plots=1))
    for number in range(SCENES):
        scene = world.scene("train", number, frames)
        found = histories_of([scene])
        order = back_to_front(scene)
        for subject in scene.plots[0].subjects:
            yield scene, scene.plots[0], subject, found.labels[:, order.index(subject)]


def last(labels: np.ndarray, label: str) -> int:
    seen = labels[labels[:, LABEL[label]] != UNKNOWN]
    return int(seen[-1, LABEL[label]])


@pytest.mark.parametrize(
    ("family", "read"),
    [
        ("count", lambda labels: NUMBERS[last(labels, "colour changes") - 1]),
        ("repetition", lambda labels: NUMBERS[last(labels, "place changes") - 1]),
        ("changed", lambda labels: (NOTHING, *CHANGES)[last(labels, "last")]),
        ("when", lambda labels: QUARTERS[last(labels, "quarter") - 1]),
        ("direction", lambda labels: WAYS[last(labels, "way")]),
        ("turning", lambda labels: WAYS[last(labels, "way")]),
        ("distant", lambda labels: "no" if last(labels, "colour changes") else "yes"),
    ],
)
def test_the_answer_is_at_the_last_frame(family, read):
    answers = [(read(labels), plot.answer) for _, plot, _, labels in labelled(family)]
    assert len(answers) == SCENES
    assert all(found == answer for found, answer in answers)
    assert len({answer for _, answer in answers}) > 1


def test_the_first_colour_names_the_one_that_turns():
    checked = 0
    for scene, plot, subject, labels in labelled("became"):
        slots = dict(plot.slots)
        first = {COLOUR_NAMES[colour] for colour in labels[:, LABEL["first colour"]] if colour != UNKNOWN}
        if first == {slots["colour"]}:
            truth = tracks(scene)
            final = np.nonzero(truth.visible[subject])[0][-1]
            assert COLOUR_NAMES[truth.colour[subject, final]] == plot.answer
            checked += 1
    assert checked == SCENES


def test_what_came_before_a_change():
    for _, plot, _, labels in labelled("neighbour"):
        slots = dict(plot.slots)
        after = slots["side"] == "after"
        asked, other = ("before", "last") if after else ("last", "before")
        pairs = {(row[LABEL[asked]], row[LABEL[other]]) for row in labels if row[PLACE] != UNKNOWN}
        near = {(NOTHING, *CHANGES)[b] for a, b in pairs if a and (NOTHING, *CHANGES)[a] == slots["asked"]}
        assert (plot.answer in near) if plot.answer != NOTHING or not after else not near


def test_what_changed_first_and_how_large_it_is():
    seen = set()
    for scene, _, subject, labels in labelled("neighbour"):
        shown = labels[labels[:, PLACE] != UNKNOWN]
        kinds = [int(kind) for kind in shown[:, LABEL["last"]]]
        first = next(kind for kind in kinds if kind)
        start = kinds.index(first)
        assert set(shown[:start, LABEL["first"]]) == {0}
        assert set(shown[start:, LABEL["first"]]) == {first}
        sizes = [SIZE_WORDS[size] for size in shown[:, LABEL["size"]]]
        assert sizes[0] == size_word(scene.actors[subject].size[0][1])
        assert set(sizes) == {"small", "large"}
        changed = [1 + i for i, (a, b) in enumerate(pairwise(sizes)) if a != b]
        assert [kinds[i] for i in changed] == [1 + CHANGES.index("size")]
        seen.add(first)
    assert len(seen) == len(CHANGES)


def test_whom_it_touches_and_who_is_in_front():
    own_looks_touched = []
    for scene, plot, subject, labels in labelled("touched"):
        if subject == plot.subjects[0]:
            moment = plot.evidence[0].start
            own = own_looks(scene, tracks(scene))[plot.evidence[1].actor, moment]
            whom = labels[moment, LABEL["touches"]]
            assert (SHAPES[whom - 1] == plot.answer) if own else (whom == UNKNOWN)
            own_looks_touched.append(own)
    assert {*own_looks_touched} == {True, False}
    for scene, plot, subject, labels in labelled("passing"):
        front = labels[:, LABEL["in front"]]
        assert (1 if scene.actors[subject].shape == plot.answer else 2) in front


def test_a_few_frames_tell_what_they_show():
    """Of the first and the last frame: what changed, and nothing of a way that two moments do not show."""
    for scene, plot, subject, _ in labelled("changed"):
        window = np.nonzero(tracks(scene).visible[subject])[0]
        few = histories_of([scene], [int(window[0]), int(window[-1])]).labels[:, back_to_front(scene).index(subject)]
        assert (NOTHING, *CHANGES)[few[1, LABEL["last"]]] == plot.answer
        assert not any(few[0, LABEL[f"{change} changes"]] for change in CHANGES)
        assert (few[:, LABEL["quarter"]] == UNKNOWN).all()
    for scene, plot, subject, _ in labelled("direction"):
        window = np.nonzero(tracks(scene).visible[subject])[0]
        few = histories_of([scene], [int(window[0]), int(window[5]), int(window[6])])
        way = few.labels[:, back_to_front(scene).index(subject), LABEL["way"]]
        assert [*way[:2], WAYS[way[2]]] == [UNKNOWN, UNKNOWN, plot.answer]


def test_changes_that_are_seen_at_once_have_no_order():
    for scene, _, subject, labels in labelled("neighbour"):
        window = np.nonzero(labels[:, PLACE] != UNKNOWN)[0]
        few = histories_of([scene], [int(window[0]), int(window[-1])]).labels[1, back_to_front(scene).index(subject)]
        several = sum(few[LABEL[f"{change} changes"]] for change in CHANGES) > 1
        assert (few[LABEL["last"]] == UNKNOWN) == several


def test_looks_of_another_split_are_not_labelled():
    """Of an object that looks as only another split's do, everything else is; of its first colour, likewise."""
    looks = [LABEL[name] for name in ("shape", "colour", "texture")]
    unlabelled = frames = 0
    for family in ("count", "existence", "touched"):
        for scene, _, subject, labels in labelled(family):
            truth = tracks(scene)
            own, shown = own_looks(scene, truth)[subject], truth.visible[subject]
            words = np.stack((truth.shape, truth.colour, truth.texture))[:, subject]
            for frame in np.nonzero(shown)[0]:
                combination = SHAPES[words[0, frame]], COLOUR_NAMES[words[1, frame]], TEXTURES[words[2, frame]]
                assert own[frame] == belongs("train", number_of(combination))
                expected = words[:, frame] if own[frame] else [UNKNOWN] * 3
                np.testing.assert_array_equal(labels[frame, looks], expected)
                first = np.nonzero(shown)[0][0]
                first_label = words[1, first] if own[first] else UNKNOWN
                assert labels[frame, LABEL["first colour"]] == first_label
                assert labels[frame, LABEL["colour changes"]] != UNKNOWN
                unlabelled += not own[frame]
                frames += 1
    assert 0.2 * frames < unlabelled < 0.6 * frames


def test_cells_have_the_object_that_covers_their_middle():
    scene = World(WorldConfig(seed=3)).scene("train", 4, 24)
    found = histories_at(histories_of([scene]), (GRID, GRID), 3, torch.device("cpu"))
    truth = tracks(scene)
    middles = (np.arange(1, GRID, 3) + 0.5) / GRID
    for frame in range(24):
        covered = np.zeros((9, 9), bool)
        for actor in np.nonzero(truth.visible[:, frame])[0]:
            x, y, size = (part[actor, frame] for part in (truth.x, truth.y, truth.size))
            covered |= (middles[None] - x) ** 2 + (middles[:, None] - y) ** 2 < size**2
        np.testing.assert_array_equal((found[frame] != UNKNOWN).any(-1).view(9, 9).numpy(), covered)


def test_the_reader_counts_what_is_known_alone():
    torch.manual_seed(0)
    reader = HistoryHead(8, objects=2)
    states, goal = torch.randn(3, 8), torch.full((3, 2, len(HISTORY)), UNKNOWN)
    assert reader.loss(states, goal)[0] == 0
    goal[0, 1] = 0
    loss, right = reader.loss(states, goal)
    read = reader.read(reader.norm(states[0])).unflatten(-1, reader.shape)[1]
    guesses = [guess[:kinds] for guess, kinds in zip(read, HISTORY.values(), strict=True)]
    expected = sum(-guess.log_softmax(-1)[0] for guess in guesses) / len(HISTORY)
    torch.testing.assert_close(loss, expected)
    assert right == pytest.approx(sum(int(guess.argmax() == 0) for guess in guesses) / len(HISTORY))


def test_what_flashes_up_is_in_front_of_all_that_it_touches():
    touches, in_front = LABEL["touches"], LABEL["in front"]
    seen = set()
    for number in range(80):
        scene = World(WorldConfig(families=("brief", "colour"))).scene("train", number, 16)
        labels = actor_histories(scene, range(16))
        for actor, mine in zip(scene.actors, labels, strict=True):
            touched = mine[mine[:, touches] > 0, in_front]
            if actor.front and len(touched):
                assert set(touched) == {1}
                seen.add(number)
    assert len(seen) > 5
