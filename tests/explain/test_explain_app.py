"""The app: its server with raw requests, and its page in a browser."""

import json
import re
from concurrent.futures import ThreadPoolExecutor, wait
from urllib.parse import quote
from urllib.request import urlopen

import bombs
import numpy as np
import pytest
from serving import ask, post, serving, upload
from showing import CHECKPOINT, PHONE, clip, serious_faults
from typer.testing import CliRunner

from aviot.bundled import FOREIGN
from aviot.cli import app as cli
from aviot.video import ReadLimits, stop_reading
from aviot.video.container import FORMATS

av = pytest.importorskip("av")


def written(path, frames, container=None, codec="libx264", pixels="yuv420p"):
    """Write a video file of two frames per second, H.264 by default, and return its path."""
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream(codec, rate=2)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            file.mux(stream.encode(picture.reformat(format=pixels)))
        file.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return written(tmp_path_factory.mktemp("app") / "wandering 'square'.mp4", clip(10))


@pytest.fixture
def app(loaded):
    with serving(loaded) as server:
        yield server


def test_one_encoding_serves_questions_ratios_and_the_same_file_again(app, video):
    status, found = upload(app, video.read_bytes(), "a%20b.mp4")
    assert (status, found["name"], found["frames"]) == (200, "a b.mp4", 10)
    first = ask(app, video=found["video"], name="x", questions=["Why?"], ratio=5)[1]
    second = ask(app, video=found["video"], name="x", questions=["Why?", "What?"], ratio=2)[1]
    assert (first["supports"], second["supports"]) == (2, 5)
    assert [each["kind"] for each in second["conditions"]] == ["matched", "rotated", "none"] * 2
    assert upload(app, video.read_bytes(), "again.mp4")[1]["video"] == found["video"]
    assert app.videos.encoded == 1
    with urlopen(f"{app.url}status") as reply:
        assert json.load(reply) == {"encoded": 1}


def test_others_are_answered_while_a_file_hangs(app, video):
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(upload, app, bombs.slow(), "slow.gif")
        found = upload(app, video.read_bytes())[1]
        assert ask(app, video=found["video"], name="x", questions=["Why?"], ratio=5)[0] == 200
        assert not hung.done()
        while not hung.done():
            stop_reading()
            wait([hung], timeout=0.2)
    assert hung.result() == (422, {"error": "slow.gif was not read: reading was stopped"})


def test_a_file_is_given_up_at_its_deadline(loaded):
    with serving(loaded, limits=ReadLimits(seconds=0.3)) as app:
        status, said = upload(app, bombs.slow(), "slow.gif")
    assert status == 422
    assert said["error"].startswith("slow.gif was not read within 0.4 s")


@pytest.mark.parametrize(
    ("name", "container", "codec", "pixels"),
    [
        ("a.gif", "gif", "gif", "rgb8"),
        ("a.ogg", "ogg", "libvpx", "yuv420p"),
        ("a.flv", "flv", "flv", "yuv420p"),
        ("a.txt", "mp4", "libx264", "yuv420p"),  # named as something else
        ("no suffix", "matroska", "libx264", "yuv420p"),
    ],
)
def test_every_container_that_answer_reads_is_taken(app, tmp_path, name, container, codec, pixels):
    file = written(tmp_path / "file", clip(3), container, codec, pixels)
    status, found = upload(app, file.read_bytes(), quote(name))
    assert (status, found["name"], found.get("frames")) == (200, name, 3), found


def test_the_file_picker_offers_every_container_that_is_read(app):
    """Offer a usual suffix of every demuxer that may read video."""
    with urlopen(app.url) as reply:
        settings = json.loads(re.search(r'id="settings">(.*?)</script>', reply.read().decode(), re.S)[1])
    offered = settings["accept"].split(",")
    assert {"video/*", ".gif", ".ogg", ".ogv", ".mp4", ".mkv", ".webm", ".avi", ".mov", ".ts"} <= set(offered)
    sound = {"aac", "ac3", "aiff", "amr", "au", "caf", "eac3", "flac", "mp3", "w64", "wav"}
    unnamed = {"av1": ".obu", "mpegvideo": ".m2v"}  # demuxers that FFmpeg gives no suffix
    for name in set(FORMATS.split(",")) - sound:
        known = {f".{suffix}" for mode in modes_of(name) for suffix in av.ContainerFormat(name, mode).extensions}
        assert known & set(offered) or unnamed[name] in offered, name


def modes_of(name):
    """Yield r and w if FFmpeg can read and write a container."""
    for mode in "rw":
        try:
            av.ContainerFormat(name, mode)
        except ValueError:
            continue
        yield mode


@pytest.mark.parametrize(
    ("body", "headers", "status", "sentence"),
    [
        (b"no video at all", {}, 422, "a.mp4"),
        (b"", {}, 422, "a.mp4"),
        (b"x", {"name": "a.txt"}, 422, "a.txt is not a video"),  # the content decides, not the name
        (b"x", {"name": "../../a.sh"}, 422, "a.sh is not a video"),
        (b"x", {"name": "long." + "x" * 300}, 422, "is not a video"),
        (b"x", {"name": ""}, 422, "the upload is not a video"),
        (b"x", {"Content_Length": "9000000"}, 413, "at most 2 MB"),
        (b"x", {"Origin": "http://elsewhere"}, 403, "only the pages of this server"),
        (b"x", {"Host": "elsewhere:80"}, 403, "only to the address"),
        (b"x", {"Content_Length": "many"}, 411, "state its length"),
        (b"x", {"Content_Length": "9" * 5000}, 413, "at most 2 MB"),
    ],
)
def test_uploads_that_are_refused(app, body, headers, status, sentence):
    got, said = upload(app, body, **headers)
    assert got == status
    assert sentence in said["error"]
    assert "/tmp" not in said["error"]


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({"video": "0", "name": "", "questions": ["a"], "ratio": 4}, 404, "not kept any more"),
        ({"video": "0", "name": "", "questions": "a", "ratio": 4}, 400, "a list of text"),
        ({"video": "0", "name": "", "questions": ["a"], "ratio": "4"}, 400, "ratio a number"),
        ({"video": "0"}, 400, "expected JSON"),
    ],
)
def test_questions_that_are_refused(app, asked, status, sentence):
    got, said = ask(app, **asked)
    assert got == status
    assert sentence in said["error"]


def test_mistakes_in_asking(app, video):
    number = upload(app, video.read_bytes())[1]["video"]
    assert ask(app, video=number, name="", questions=[" "], ratio=4) == (
        422,
        {"error": "the question is empty; ask something about the video"},
    )
    assert "ratio must be" in ask(app, video=number, name="", questions=["a"], ratio=1)[1]["error"]
    assert post(app, "/videos", b"x", Content_Type="text/plain")[0] == 415
    assert post(app, "/elsewhere", b"")[0] == 404
    assert post(app, "/ask", b"[" * 50_000, Content_Type="application/json")[0] == 400
    half = ask(app, video=number, name="\ud800", questions=["\ud800?"], ratio=4)
    assert (half[0], "UTF-8" in half[1]["error"]) == (422, True)


def test_a_port_that_is_taken_is_said(app):
    port = str(app.server_address[1])
    done = CliRunner().invoke(cli, ["app", "--model", str(CHECKPOINT), "--port", port, "--device", "cpu"])
    assert done.exit_code == 2
    assert f"cannot serve at 127.0.0.1:{port}" in " ".join(done.stderr.split())


def test_in_a_browser(app, video, tab, tmp_path):
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#status:has-text('10 frames')")
    page.fill("#question", "What <b>moves</b>?")
    page.click("#submit")
    shown.settled()
    assert page.locator("#first .question").all_inner_texts() == ["What <b>moves</b>?"]
    assert "wandering 'square'.mp4" in shown.text(".file")
    before = shown.text(".facts")
    page.get_by_label("Compression ratio", exact=False).first.fill("1.5")
    page.wait_for_function("before => document.querySelector('.facts')?.textContent !== before", arg=before)
    page.fill("#second", "Why?")
    page.click("#submit")
    page.locator("#first .question").nth(1).wait_for()
    assert app.videos.encoded == 1
    other = tab()
    other.page.goto(app.url)
    other.page.set_input_files("#file", str(written(tmp_path / "other.mp4", clip(5, seed=1))))
    other.page.fill("#question", "Where?")
    other.page.wait_for_selector("#submit:enabled")
    other.page.click("#submit")
    other.settled()
    assert "other.mp4" in other.text(".file")
    assert "wandering" in shown.text(".file")
    assert app.videos.encoded == 2
    assert shown.complaints == other.complaints == []
    assert not [url for url in shown.requests if not url.startswith((app.url, "data:", "blob:"))]


def test_the_bundled_model_says_that_it_does_not_know_a_video(loaded, bundled, video, tab):
    with serving(loaded) as app:
        shown = tab(PHONE)
        page = shown.page
        page.goto(app.url)
        assert "bundled demo model" in shown.text("#model")
        assert not page.locator("#notice").is_visible()
        page.set_input_files("#file", str(video))
        page.wait_for_selector("#notice:visible")
        assert shown.text("#notice") == FOREIGN
        assert serious_faults(page) == []
        page.fill("#question", "What is the woman doing?")
        page.click("#submit")
        shown.settled()
        assert shown.text("#explorer .notice") == FOREIGN
        assert "bundled demo model" in shown.text("#explorer .model")
        assert not shown.overflows()
        assert shown.complaints == []


def test_the_notice_comes_with_the_upload_and_with_the_report(loaded, bundled, video):
    with serving(loaded) as app:
        found = upload(app, video.read_bytes())[1]
        assert found["notice"] == FOREIGN
        report = ask(app, video=found["video"], name="x", questions=["Why?"], ratio=5)[1]
        assert (report["notice"], report["model"]["name"]) == (FOREIGN, "bundled demo model")


def test_other_models_come_without_a_notice(app, video):
    assert upload(app, video.read_bytes())[1]["notice"] is None


def test_one_clear_message(app, video, tab, tmp_path):
    shown = tab(PHONE)
    page = shown.page
    page.goto(app.url)
    assert not shown.overflows()
    (tmp_path / "text.mp4").write_text("this is a text")
    (tmp_path / "broken.mp4").write_bytes(video.read_bytes()[:300])
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "large.mp4").write_bytes(bytes(2_000_001))
    for name, sentence in (
        ("text.mp4", "text.mp4"),
        ("broken.mp4", "broken.mp4"),
        ("notes.txt", "notes.txt is not a video"),
        ("large.mp4", "at most 2 MB"),
    ):
        page.set_input_files("#file", str(tmp_path / name))
        page.wait_for_selector(f"#problem:has-text('{sentence}')")
        assert page.locator("#status").inner_text() == ""
        assert page.locator("#submit").is_disabled()
        assert not shown.overflows()
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#status:has-text('is ready')")
    assert page.locator("#problem").inner_text() == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_the_app(app, tab, scheme):
    page = tab(scheme=scheme).page
    page.goto(app.url)
    assert serious_faults(page) == []
    page.set_input_files("#file", files=[{"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}])
    page.wait_for_selector("#problem:not(:empty)")
    assert serious_faults(page) == []
