"""What a question's answer has to recall is enough to answer it, and lies where the answer begins."""

import pytest
import torch

from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.scenes.scene import COLOUR_NAMES, SHAPES
from aviot_lab.demo_model.answer_tasks import recall_targets
from aviot_lab.demo_model.batches import TrainingBatches
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.histories import HISTORY, UNKNOWN, WAYS
from aviot_lab.world import World, WorldConfig
from aviot_lab.world.layout import CELLS
from aviot_lab.world.words import CHANGES, NOTHING, NUMBERS, QUADRANTS, QUARTERS

LABEL = {name: number for number, name in enumerate(HISTORY)}
SCENES = 12
OTHERS_LOOKS = ("touched", "became", "passing")  # families whose answers are looks that their combination leaves open


def quadrant(cell: int) -> str:
    return QUADRANTS[2 * (cell // CELLS >= CELLS / 2) + (cell % CELLS >= CELLS / 2)]


@pytest.mark.parametrize(
    ("family", "read"),
    [
        ("colour", lambda label: COLOUR_NAMES[label(0, "colour")]),
        ("shape", lambda label: SHAPES[label(0, "shape")]),
        ("brief", lambda label: SHAPES[label(0, "shape")]),
        ("where", lambda label: quadrant(label(0, "place"))),
        ("touched", lambda label: SHAPES[label(0, "touches") - 1]),
        ("touched", lambda label: SHAPES[label(1, "shape")]),
        ("count", lambda label: NUMBERS[label(0, "colour changes") - 1]),
        ("repetition", lambda label: NUMBERS[label(0, "place changes") - 1]),
        ("changed", lambda label: (NOTHING, *CHANGES)[label(0, "last")]),
        ("became", lambda label: COLOUR_NAMES[label(0, "colour")]),
        ("when", lambda label: QUARTERS[label(0, "quarter") - 1]),
        ("direction", lambda label: WAYS[label(0, "way")]),
        ("turning", lambda label: WAYS[label(0, "way")]),
        ("distant", lambda label: "no" if label(0, "colour changes") else "yes"),
        ("passing", lambda label: SHAPES[label(0 if label(0, "in front") == 1 else 1, "shape")]),
        ("swap", lambda label: "yes" if label(0, "place") == label(1, "first place") else "no"),
    ],
)
def test_the_answer_follows_from_what_is_recalled(family, read):
    """Unless it is a look that is another split's, of which nothing is label: never so where it names the question."""
    world = World(WorldConfig(seed=3, families=(family,), plots=1))
    labels = torch.tensor([[IGNORED, IGNORED, 5, 6, IGNORED]])
    known = 0
    for number in range(SCENES):
        scene = world.scene("train", number, 40)
        question = world.question(scene)
        found = recall_targets(labels, [(scene, [question])])
        assert (found.row.tolist(), found.place.tolist()) == ([0], [1])

        def label(which: int, name: str, labels=found.histories[0]) -> int:
            if labels[which, LABEL[name]] == UNKNOWN:
                raise LookupError(name)
            return int(labels[which, LABEL[name]])

        missing = ""
        try:
            assert read(label) == question.answer
        except LookupError as unlabelled:
            missing = str(unlabelled)
        assert not missing or (family in OTHERS_LOOKS and missing in ("shape", "colour", "touches"))
        known += not missing
    assert known > SCENES / 4


def test_the_order_of_all_changes_is_recalled():
    world = World(WorldConfig(seed=3, families=("neighbour",), plots=1))
    answers = set()
    for number in range(SCENES):
        scene = world.scene("train", number, 40)
        question = world.question(scene)
        recalled = recall_targets(torch.tensor([[IGNORED, 5]]), [(scene, [question])]).histories[0, 0]
        order = [
            NOTHING,
            *((NOTHING, *CHANGES)[recalled[LABEL[name]]] for name in ("first", "before", "last")),
            NOTHING,
        ]
        slots = dict(scene.plots[0].slots)
        assert order[order.index(slots["asked"]) + (1 if slots["side"] == "after" else -1)] == question.answer
        answers.add(question.answer)
    assert answers == {NOTHING, *CHANGES}


def test_recall_targets_lie_before_the_answers_of_batches_and_at_the_ends_of_options(tokenizer):
    phases = Phase("whole", 1, ((3, 16),), (1e-3, 1e-3)), Phase("compressed", 8, ((2, 16),), (1e-3, 1e-3))
    batches = TrainingBatches(Curriculum(phases), tokenizer)
    kinds = set()
    for step in range(9):
        batch = batches[step]
        recalls = batch.recall
        kinds.add((batch.ratio is None, batch.histories is None))
        assert (batch.labels[recalls.row, recalls.place] == IGNORED).all()
        follow = batch.labels[recalls.row, recalls.place + 1] != IGNORED
        ends = {*zip(recalls.row[~follow].tolist(), recalls.place[~follow].tolist(), strict=True)}
        options = {*zip(batch.options.row.tolist(), batch.options.place.tolist(), strict=True)}
        assert ends == options
        assert recalls.histories.shape == (len(recalls.row), 2, len(HISTORY))
        answers = 0  # so many have been passed when an answer begins: its options recall what it does
        for row, found, answer in zip(recalls.row, recalls.histories, follow, strict=True):
            at = follow.nonzero().flatten()[answers]
            assert recalls.row[at] == row
            assert torch.equal(found, recalls.histories[at])
            answers += int(answer)
        if batch.ratio is not None:
            assert recalls.row[follow].tolist() == list(range(len(batch.ids)))
    assert kinds == {(True, False), (False, True)}


def test_what_is_no_question_recalls_nothing():
    scene = World(WorldConfig()).scene("train", 0, 16)
    labels = torch.tensor([[IGNORED, 5, IGNORED]])
    assert recall_targets(labels, [(scene, [None])]) is None
