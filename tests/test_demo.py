"""`aviot demo`: what it says is what was compressed and answered, and its page is written."""

import base64
import json
import re
import sys
import zlib
from io import StringIO
from itertools import count
from pathlib import Path

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from aviot.cli import app
from aviot.commands.demo import _described
from aviot.demo import Asked, Demo, draw_scene
from aviot.utils.printing import SafeConsole
from aviot_lab.demo_model.architecture import new_model, small_processor
from aviot_lab.demo_model.tokenizer import build_tokenizer
from aviot_lab.world import World, WorldConfig

runner = CliRunner()


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Save the untrained demo model; return its folder."""
    folder = tmp_path_factory.mktemp("small")
    tokenizer = build_tokenizer()
    new_model(tokenizer, 0).save_pretrained(folder)
    small_processor(tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def small_video(tmp_path):
    """Write a short clip that is not a scene of the world; return its path."""
    file = tmp_path / "grey.mp4"
    with av.open(str(file), "w") as container:
        stream = container.add_stream("h264", rate=2)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for shade in range(8):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 30 * shade, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file


def demo(*arguments):
    return runner.invoke(app, ["demo", *map(str, arguments)])


@pytest.fixture(scope="module")
def drawn(small, tmp_path_factory):
    """Run the demo on a scene; return the result and the folder that it wrote."""
    folder = tmp_path_factory.mktemp("drawn")
    return demo("--model", small, "--output", folder, "--scene", 3, "--json"), folder


def test_a_scene_and_its_two_questions(drawn):
    done, folder = drawn
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["frames"], report["path"][-1]) == (64, 16)
    assert report["tokens_before"] == 4 * report["tokens_after"] == 64 * 90
    assert report["spans"][0][0] == 0
    assert report["spans"][-1][1] == 32
    world = World(WorldConfig())
    questions = world.questions(world.scene("test", 3, 64))[:2]
    assert [one["question"] for one in report["asked"]] == [one.text for one in questions]
    assert [one["truth"] for one in report["asked"]] == [one.answer for one in questions]
    expected = [one["answer"].strip().lower() == one["truth"] for one in report["asked"]]
    assert report["right"] == expected
    for one in report["asked"]:
        assert [sum(stage) for stage in one["budgets"]] == report["path"][1:]
        assert len(one["budgets"][0]) == len(report["spans"])
    page = (folder / "report.html").read_text()
    assert all(json.dumps(one.text)[1:-1] in page for one in questions)


def test_a_video_of_ones_own(small, drawn, tmp_path):
    """Treat the file of a drawn scene like any video, and show the question verbatim."""
    video = drawn[1] / "scene.mp4"
    done = demo("--model", small, "--output", tmp_path, "--video", video, "--ratio", 30, "-q", "[b]Why?")
    assert done.exit_code == 0, done.output
    assert "[b]Why?" in done.stdout
    assert "64 frames, compressed to 3" in " ".join(done.stdout.split())
    assert "in truth" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ratio", "1"), "ratio must be"),
        (("--scene", "-1"), "scene must be at least 0"),
        (("--scene", "3", "--video", "mine.mp4"), "give one of the two"),
        (("--video", "nowhere.mp4"), "nowhere.mp4"),
        (("--question", " "), "the question is empty"),
    ],
)
def test_mistakes_are_one_sentence(small, tmp_path, arguments, sentence):
    kept = tmp_path / "scene.mp4"
    kept.write_text("mine")
    done = demo("--model", small, "--output", tmp_path, *arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert kept.read_text() == "mine"


def test_words_do_not_steer_the_terminal():
    """Replace control characters in questions, answers and file names."""
    steering = "a\x1b[2Jb\rc\x0bd\x85e"
    asked = Asked(question=f"q{steering}", answer=f"w{steering}", truth=None, budgets=((1, 1),))
    shown = Demo(Path(f"v{steering}"), Path(f"p{steering}"), 4, (4, 2), 8, 4, ((0.0, 1.0), (1.0, 2.0)), (asked, asked))
    console = SafeConsole(width=200, record=True, file=StringIO())
    for part in _described(shown):
        console.print(part)
    text = console.export_text()
    assert not {"\x1b", "\r", "\x0b", "\x85"} & set(text)
    for letter in "qwvp":
        assert f"{letter}a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}c" in text


def test_a_video_that_is_not_there_is_named_before_anything_is_written(tmp_path):
    done = demo("--output", tmp_path / "out", "--video", tmp_path / "nowhere.mp4")
    assert done.exit_code == 2
    assert "nowhere.mp4; a video must be a local file" in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_folder_is_named(small, tmp_path):
    (tmp_path / "out").write_text("mine")
    done = demo("--model", small, "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert "out is a file; name a folder for the demo with -o" in " ".join(done.stderr.split())
    assert (tmp_path / "out").read_text() == "mine"


def test_what_stands_where_the_page_goes_is_noticed_before_a_video_is_written(small, tmp_path):
    (tmp_path / "report.html").mkdir()
    done = demo("--model", small, "--output", tmp_path)
    assert done.exit_code == 2
    assert not (tmp_path / "scene.mp4").exists()


def test_the_small_model_answers_both_questions(tmp_path):
    """Use the bundled model if no model is named."""
    done = demo("--output", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["right"] == [True, True]
    assert shown["notice"] is None  # it knows this world
    assert shown["model"] == "bundled demo model"
    opens_where_the_questions_are_answered((tmp_path / "report.html").read_text())


def opens_where_the_questions_are_answered(page):
    """Check that the support shown first for every question consists of the frames with its evidence."""
    report = json.loads(re.search(r'id="report">(.*?)</script>', page, re.S)[1])
    world = World(WorldConfig())
    questions = world.questions(world.scene("test", 3, 64))
    for condition in report["conditions"]:
        evidence = {f for e in questions[condition["question"]].evidence for f in range(e.start, e.stop)}
        assert condition["frame"] in evidence, condition
        if condition["kind"] == "matched":
            packed = zlib.decompress(base64.b64decode(report["views"][condition["view"]]["mass"]))
            shares = np.frombuffer(packed, "<f4").reshape(-1, report["supports"], 64).sum(0)[condition["support"]]
            assert shares[sorted(evidence)].sum() > 0.9


def test_of_a_foreign_video_it_says_that_it_knows_none(small_video, tmp_path):
    done = demo("--output", tmp_path, "--video", small_video)
    assert done.exit_code == 0, done.output
    assert "knows its own world of drawn shapes alone" in " ".join(done.stdout.split())
    done = demo("--output", tmp_path, "--video", small_video, "--json")
    assert "means nothing" in json.loads(done.stdout)["notice"]


def test_a_scene_of_one_story_is_refused(tmp_path):
    world = World(WorldConfig(frames=(64,)))
    lonely = next(number for number in count() if len(world.scene("test", number).plots) == 1)
    with pytest.raises(ValueError, match=f"scene {lonely} has one question"):
        draw_scene(lonely, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_the_lab_scenes_that_are_not_stored_are_refused(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aviot_lab", None)  # as if it were not installed
    done = demo("--model", small, "--output", tmp_path / "out", "--scene", 10)
    assert done.exit_code == 2
    assert "7, 8, 9, got 10; others need the package aviot_lab" in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_without_the_small_model_a_model_must_be_named(monkeypatch, tmp_path):
    monkeypatch.setattr("aviot.bundled.FOLDER", tmp_path / "nothing")
    done = demo("--output", tmp_path)
    assert done.exit_code == 2
    assert "name a checkpoint (--model)" in done.stderr
