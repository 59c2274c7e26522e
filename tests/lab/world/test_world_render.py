"""Pixels: where the tracks say, the same in any batch, on any device and after a file."""

import sys

import numpy as np
import pytest
import torch

from aviot.scenes.scene import COLOURS, SHAPES, TEXTURES
from aviot.scenes.textures import SPRITE_SIDE, sprite_table
from aviot.utils.splitmix64 import MASK, STRIDE, splitmix64
from aviot_lab.world import World, WorldConfig, render, save, tracks

WORLD = World(WorldConfig(seed=5))
SCENES = [WORLD.scene("train", index) for index in range(6)]


def test_frames_are_bytes_with_their_times():
    clips = render(SCENES[:2])
    assert clips.frames.shape == (2, 64, 108, 108, 3)
    assert clips.frames.dtype == torch.uint8
    assert clips.times == tuple(i / 2 for i in range(64)) == SCENES[0].times
    assert SCENES[0].duration == 32


def test_a_scene_is_the_same_in_any_batch():
    together = render(SCENES).frames
    for scene, frames in zip(SCENES, together, strict=True):
        assert torch.equal(render([scene]).frames[0], frames)


def test_chosen_frames_are_those_of_the_whole():
    chosen = [0, 3, 17, 63]
    clips = render(SCENES[:1], indices=chosen)
    assert torch.equal(clips.frames, render(SCENES[:1]).frames[:, chosen])
    assert clips.times == (0.0, 1.5, 8.5, 31.5)


def test_batches_are_scenes_with_their_questions():
    batch = next(WORLD.stream("train", 3, position=2))
    assert batch.scenes == tuple(SCENES[2:5])
    assert torch.equal(batch.clips.frames, render(SCENES[2:5]).frames)
    assert [len(questions) for questions in batch.questions] == [len(scene.plots) for scene in batch.scenes]
    later = WORLD.batch("train", 4, 1, frames=16)
    assert later.clips.frames.shape[1] == 16
    mixed = World(WorldConfig(frames=(16, 24, 32)))
    assert {mixed.scene("train", i).frames for i in range(20)} == {16, 24, 32}
    assert len({scene.frames for scene in mixed.batch("train", 0, 4).scenes}) == 1


def test_every_object_has_its_colour_where_it_is():
    """Every visible object that nothing is before, at a place of plain fill."""
    world = World(WorldConfig(seed=5, noise=0))
    found = 0
    for index in range(12):
        scene = world.scene("train", index)
        frames, truth = render([scene]).frames[0].numpy().astype(int), tracks(scene)
        for i, actor in enumerate(scene.actors):
            if actor.shape not in ("ring", "moon", "hourglass") and actor.texture == "plain":
                for t in np.flatnonzero(truth.visible[i] & ~(truth.visible & (truth.size > 0.2)).any(0)):
                    x, y = truth.x[:, t], truth.y[:, t]
                    apart = np.hypot(x - x[i], y - y[i])[truth.visible[:, t]]
                    if np.sort(apart)[1:].min(initial=1) > 0.25:
                        pixel = frames[t, int(y[i] * 108), int(x[i] * 108)]
                        colour = list(COLOURS.values())[truth.colour[i, t]]
                        assert np.abs(pixel - colour).max() <= 1, (index, i, t)
                        found += 1
    assert found > 200


def test_what_is_in_front_hides_what_is_behind():
    world = World(WorldConfig(seed=5, noise=0, families=("passing",), distractors=0))
    for index in range(8):
        scene = world.scene("train", index)
        truth = tracks(scene)
        t = int(np.argmin(np.hypot(truth.x[0] - truth.x[1], truth.y[0] - truth.y[1]) + ~truth.visible[0]))
        both = render([scene], indices=[t]).frames[0, 0].numpy().astype(int)
        front = sprite_table().reshape(len(SHAPES), len(TEXTURES), SPRITE_SIDE, SPRITE_SIDE, 2)[
            truth.shape[1, t], 0, ..., 0
        ]
        row, column = np.unravel_index(front.argmin(), front.shape)  # the place furthest inside
        offset = (np.array([column, row]) + 0.5) / SPRITE_SIDE * 2.4 - 1.2
        x, y = (np.array([truth.x[1, t], truth.y[1, t]]) + offset * truth.size[1, t]) * 108
        fill = np.array(list(COLOURS.values())[truth.colour[1, t]])
        tone = np.where(fill.mean() < 40, 120, fill * 0.38)
        share = (both[int(y), int(x)] - fill) / np.where(tone == fill, 1, tone - fill)
        assert share.max() - share.min() < 0.06, (index, both[int(y), int(x)], fill)  # between its two tones


@pytest.mark.gpu
def test_devices_agree_to_a_level():
    scenes = [WORLD.scene("test", index) for index in range(24)]
    host, device = render(scenes).frames.int(), render(scenes, "cuda").frames.int().cpu()
    assert (host - device).abs().max() <= 1


def test_a_written_scene_reads_back(tmp_path):
    from aviot.video import read_video

    save(SCENES[0], tmp_path / "scene.mp4")
    video = read_video(tmp_path / "scene.mp4", fps=2)
    assert video.times == SCENES[0].times
    assert video.duration == SCENES[0].duration
    frames = render(SCENES[:1]).frames[0].numpy().astype(int)
    assert np.abs(video.frames.astype(int) - frames).mean() < 6


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"pip install 'aviot\[video\]'"):
        save(SCENES[0], tmp_path / "scene.mp4")


def test_batches_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="scenes is empty"):
        render([])
    with pytest.raises(ValueError, match="must agree in frames"):
        render([SCENES[0], WORLD.scene("train", 0, 16)])
    with pytest.raises(ValueError, match="indices must name frames 0 to 63"):
        render(SCENES[:1], indices=[64])


def test_random_bits_are_splitmix64s():
    """Its published sequence from 1234567, of numbers and of arrays."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    states = [(1234567 + (i + 1) * STRIDE) & MASK for i in range(4)]
    assert [splitmix64(state) for state in states] == expected
    assert splitmix64(np.array(states, np.uint64)).tolist() == expected


def test_pixels_are_those_that_the_packages_model_learnt_from():
    """Backgrounds, noise and objects along a line of one frame, to a level: rounding may differ between machines."""
    frames = render([World(WorldConfig()).scene("test", 0, 16)]).frames
    line = frames[0, 7, 50, 10:100:9, 0].int()
    expected = torch.tensor([133, 83, 81, 90, 83, 89, 183, 192, 94, 153], dtype=torch.int32)
    assert (line - expected).abs().max() <= 1
