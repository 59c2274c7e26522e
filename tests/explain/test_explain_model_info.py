"""The description of the model that answers, and the videos that the bundled model knows."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from showing import CHECKPOINT, clip

from aviot.backbones.llava_video.backbone import LlavaVideo
from aviot.bundled import FOREIGN, KNOWS, embedded_model, is_drawn, is_embedded
from aviot.commands.model import DEMO_MODEL_ANSWERS
from aviot.explain.study import ModelInfo
from aviot.video import read_video
from aviot.video.frames import Damage
from aviot_lab.world import World, WorldConfig, save


@pytest.fixture
def model(loaded, monkeypatch):
    """Return the tiny model, whose path a test may change."""
    monkeypatch.setattr(loaded[0], "name_or_path", loaded[0].name_or_path)
    return loaded[0]


def test_a_model_has_the_name_of_its_folder_and_its_size(model, monkeypatch):
    info = ModelInfo.of(LlavaVideo(model, None))
    assert (info.name, info.bundled) == (CHECKPOINT.name, False)
    assert info.parameters == sum(weight.numel() for weight in model.parameters())
    assert info.facts.endswith(f"parameters, decoder of {info.layers} layers, {info.width} wide")
    monkeypatch.chdir(CHECKPOINT)
    for folder, name in (
        (".", "checkpoint"),
        ("/hub/models--lab--video-7b/snapshots/0123abc", "lab/video-7b"),
        ("", "unnamed model"),
    ):
        model.name_or_path = folder
        assert ModelInfo.of(LlavaVideo(model, None)).name == name


def test_the_bundled_model_is_recognised_by_its_weights_wherever_they_are(model, tmp_path):
    copied, tuned = tmp_path / "copied", tmp_path / "tuned"
    for folder in (copied, tuned):
        folder.mkdir()
        shutil.copyfile(embedded_model() / "model.safetensors", folder / "model.safetensors")
    with (tuned / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    assert [is_embedded(folder) for folder in (embedded_model(), copied, tuned, CHECKPOINT)] == [
        True,
        True,
        False,
        False,
    ]
    model.name_or_path = str(copied)
    assert (ModelInfo.of(LlavaVideo(model, None)).name, ModelInfo.of(LlavaVideo(model, None)).bundled) == (
        "bundled demo model",
        True,
    )


def test_only_files_that_this_package_drew_are_of_its_world(model, tmp_path):
    av = pytest.importorskip("av")
    drawn, remuxed = tmp_path / "drawn.mp4", tmp_path / "remuxed.mkv"
    save(World(WorldConfig(frames=(16,))).scene("test", 0), drawn)
    with av.open(str(drawn)) as source, av.open(str(remuxed), "w") as target:
        target.metadata.update(source.metadata)
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    foreign = read_video(clip(2), source_fps=2)
    info = replace(ModelInfo.of(LlavaVideo(model, None)), bundled=True)
    for file in (drawn, remuxed):
        video = read_video(file)
        assert is_drawn(video.comment), file
        assert info.notice(video) is None
        assert np.asarray(video.frames).shape[0] == 16
    assert info.notice(foreign) == FOREIGN
    assert info.notice(replace(foreign, name="scene.mp4", comment="mine")) == FOREIGN
    assert replace(info, bundled=False).notice(foreign) is None


def test_a_damaged_video_is_noticed_on_the_page_and_in_the_app(model):
    info, damage = replace(ModelInfo.of(LlavaVideo(model, None)), bundled=False), Damage(10.0, 4.6, 0)
    damaged = replace(read_video(clip(2), source_fps=2), damage=damage)
    assert info.notice(damaged) == "The video is damaged: 4.6 of 10.0 s are missing (46 %)."
    assert replace(info, bundled=True).notice(damaged) == f"{info.notice(damaged)} {FOREIGN}"
    assert info.foreign(damaged) is None


def test_the_words_about_the_bundled_model_stand_once():
    assert DEMO_MODEL_ANSWERS.startswith(KNOWS)
    assert FOREIGN.startswith(KNOWS)
