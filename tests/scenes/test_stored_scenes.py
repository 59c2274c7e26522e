"""The scenes that come with the package are those of the world, to the last pixel and word."""

import subprocess
import sys

import pytest
import torch

from aviot.scenes import check_number, from_json, render, scene_with_questions, stored_numbers, to_json
from aviot.scenes.files import FOLDER
from aviot_lab.world import World, WorldConfig


@pytest.mark.parametrize("number", stored_numbers())
def test_a_stored_scene_is_the_one_of_the_world(number):
    world = World(WorldConfig(frames=(64,)))
    scene = world.scene("test", number)
    found = from_json((FOLDER / f"{number}.json").read_text())
    assert found.scene == scene
    assert torch.equal(render([found.scene]).frames, render([scene]).frames)
    assert found.questions == tuple((one.text, one.answer) for one in world.questions(scene)[:2])
    assert len(found.questions) == 2


def test_ten_scenes_are_stored_and_any_other_is_generated():
    assert stored_numbers() == list(range(10))
    generated = scene_with_questions(27)
    assert generated.scene == World(WorldConfig(frames=(64,))).scene("test", 27)
    assert from_json(to_json(generated)) == generated


def test_every_kind_of_trajectory_survives_json():
    world = World(WorldConfig(frames=(16,), families=("direction", "turning", "swap", "count")))
    scenes = [world.scene("train", number) for number in range(60)]
    kinds = {type(actor.path).__name__ for scene in scenes for actor in scene.actors}
    assert kinds == {"Jumps", "Glide", "Orbit", "Lane", "Bounce"}
    for scene in scenes:
        described = type(scene_with_questions(0))(scene, (("Why?", "So."),))
        assert repr(from_json(to_json(described))) == repr(described)


def test_without_the_lab_stored_scenes_are_drawn_and_others_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "aviot_lab", None)  # as if it were not installed
    assert scene_with_questions(9).scene.index == 9
    sentence = "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, got 10; others need the package aviot_lab"
    with pytest.raises(ValueError, match=sentence):
        check_number(10)


def test_drawing_a_stored_scene_does_not_import_the_lab(tmp_path):
    code = f"""
import sys
sys.modules["aviot_lab"] = None
from aviot.demo import draw_scene
from pathlib import Path
video, questions = draw_scene(3, Path({str(tmp_path)!r}))
assert video.stat().st_size > 1000 and len(questions) == 2
assert not [name for name in sys.modules if name.startswith("aviot_lab.")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
