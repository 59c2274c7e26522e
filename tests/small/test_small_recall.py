"""What a question's answer has to recall is enough to answer it, and lies where the answer begins."""

import pytest
import torch

from aviot.backbones.llava_video.sequence import IGNORED
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.histories import HISTORY, UNKNOWN, WAYS
from aviot_lab.demo_model.lessons import Lessons
from aviot_lab.demo_model.recall import recalls_of
from aviot_lab.world import World, WorldConfig
from aviot_lab.world.stage import CELLS
from aviot_lab.world.words import CHANGES, COLOUR_NAMES, NOTHING, NUMBERS, QUADRANTS, QUARTERS, SHAPES

LABEL = {name: number for number, name in enumerate(HISTORY)}
SCENES = 12
OTHERS_LOOKS = ("touched", "became", "passing")  # families whose answers are looks that their combination leaves open


def quadrant(cell: int) -> str:
    return QUADRANTS[2 * (cell // CELLS >= CELLS / 2) + (cell % CELLS >= CELLS / 2)]


@pytest.mark.parametrize(
    ("family", "read"),
    [
        ("colour", lambda told: COLOUR_NAMES[told(0, "colour")]),
        ("shape", lambda told: SHAPES[told(0, "shape")]),
        ("brief", lambda told: SHAPES[told(0, "shape")]),
        ("where", lambda told: quadrant(told(0, "place"))),
        ("touched", lambda told: SHAPES[told(0, "touches") - 1]),
        ("touched", lambda told: SHAPES[told(1, "shape")]),
        ("count", lambda told: NUMBERS[told(0, "colour changes") - 1]),
        ("repetition", lambda told: NUMBERS[told(0, "place changes") - 1]),
        ("changed", lambda told: (NOTHING, *CHANGES)[told(0, "last")]),
        ("became", lambda told: COLOUR_NAMES[told(0, "colour")]),
        ("when", lambda told: QUARTERS[told(0, "quarter") - 1]),
        ("direction", lambda told: WAYS[told(0, "way")]),
        ("turning", lambda told: WAYS[told(0, "way")]),
        ("distant", lambda told: "no" if told(0, "colour changes") else "yes"),
        ("passing", lambda told: SHAPES[told(0 if told(0, "in front") == 1 else 1, "shape")]),
        ("swap", lambda told: "yes" if told(0, "place") == told(1, "first place") else "no"),
    ],
)
def test_the_answer_follows_from_what_is_recalled(family, read):
    """Unless it is a look that is another split's, of which nothing is told: never so where it names the question."""
    world = World(WorldConfig(seed=3, families=(family,), plots=1))
    labels = torch.tensor([[IGNORED, IGNORED, 5, 6, IGNORED]])
    known = 0
    for number in range(SCENES):
        scene = world.scene("train", number, 40)
        question = world.question(scene)
        found = recalls_of(labels, [(scene, [question])])
        assert (found.row.tolist(), found.place.tolist()) == ([0], [1])

        def told(which: int, name: str, labels=found.histories[0]) -> int:
            if labels[which, LABEL[name]] == UNKNOWN:
                raise LookupError(name)
            return int(labels[which, LABEL[name]])

        missing = ""
        try:
            assert read(told) == question.answer
        except LookupError as untold:
            missing = str(untold)
        assert not missing or (family in OTHERS_LOOKS and missing in ("shape", "colour", "touches"))
        known += not missing
    assert known > SCENES / 4


def test_the_order_of_all_changes_is_recalled():
    world = World(WorldConfig(seed=3, families=("neighbour",), plots=1))
    answers = set()
    for number in range(SCENES):
        scene = world.scene("train", number, 40)
        question = world.question(scene)
        recalled = recalls_of(torch.tensor([[IGNORED, 5]]), [(scene, [question])]).histories[0, 0]
        order = [
            NOTHING,
            *((NOTHING, *CHANGES)[recalled[LABEL[name]]] for name in ("first", "before", "last")),
            NOTHING,
        ]
        slots = dict(scene.plots[0].slots)
        assert order[order.index(slots["asked"]) + (1 if slots["side"] == "after" else -1)] == question.answer
        answers.add(question.answer)
    assert answers == {NOTHING, *CHANGES}


def test_recalls_lie_before_the_answers_of_lessons_and_at_the_ends_of_options(tokenizer):
    phases = Phase("whole", 1, ((3, 16),), (1e-3, 1e-3)), Phase("compressed", 8, ((2, 16),), (1e-3, 1e-3))
    lessons = Lessons(Curriculum(phases), tokenizer)
    kinds = set()
    for step in range(9):
        lesson = lessons[step]
        recalls = lesson.recalls
        kinds.add((lesson.ratio is None, lesson.histories is None))
        assert (lesson.labels[recalls.row, recalls.place] == IGNORED).all()
        follow = lesson.labels[recalls.row, recalls.place + 1] != IGNORED
        ends = {*zip(recalls.row[~follow].tolist(), recalls.place[~follow].tolist(), strict=True)}
        options = {*zip(lesson.options.row.tolist(), lesson.options.place.tolist(), strict=True)}
        assert ends == options
        assert recalls.histories.shape == (len(recalls.row), 2, len(HISTORY))
        answers = 0  # so many have been passed when an answer begins: its options recall what it does
        for row, found, answer in zip(recalls.row, recalls.histories, follow, strict=True):
            at = follow.nonzero().flatten()[answers]
            assert recalls.row[at] == row
            assert torch.equal(found, recalls.histories[at])
            answers += int(answer)
        if lesson.ratio is not None:
            assert recalls.row[follow].tolist() == list(range(len(lesson.ids)))
    assert kinds == {(True, False), (False, True)}


def test_what_is_no_question_recalls_nothing():
    scene = World(WorldConfig()).scene("train", 0, 16)
    labels = torch.tensor([[IGNORED, 5, IGNORED]])
    assert recalls_of(labels, [(scene, [None])]) is None
