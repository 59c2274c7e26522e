"""The app: its server with raw requests, and its page in a browser."""

import json
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from urllib.parse import quote
from urllib.request import urlopen

import bombs
import numpy as np
import pytest
from serving import ask, chat, eventually, post, request, serving, upload
from showing import CHECKPOINT, CHROMIUM, PHONE, clip, serious_faults
from typer.testing import CliRunner

from aviot.bundled import FOREIGN
from aviot.cli import app as cli
from aviot.engine.continuous import ContinuousEngine
from aviot.scenes import scene_with_questions
from aviot.serve import explanations, videos
from aviot.video import ReadLimits, isolated, stop_reading
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
    first = ask(app, found["video"], ["Why?"], 5)[1]
    second = ask(app, found["video"], ["Why?", "What?"], 2)[1]
    assert (first["supports"], second["supports"]) == (2, 5)
    assert [each["kind"] for each in second["conditions"]] == ["matched", "rotated", "none"] * 2
    assert upload(app, video.read_bytes(), "again.mp4")[1]["video"] == found["video"]
    assert app.encoded == 1
    with urlopen(f"{app.url}status") as reply:
        assert json.load(reply) == {"encoded": 1}


def test_others_are_answered_while_a_file_hangs(app, video):
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(upload, app, bombs.slow(), "slow.gif")
        found = upload(app, video.read_bytes())[1]
        assert ask(app, found["video"], ["Why?"], 5)[0] == 200
        assert not hung.done()
        while not hung.done():
            stop_reading()
            wait([hung], timeout=0.2)
    assert hung.result() == (422, {"error": "slow.gif was not read: reading was stopped"})


def test_a_file_is_given_up_at_its_deadline(loaded):
    with serving(loaded, read=ReadLimits(seconds=0.3)) as app:
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
        (b"x", {"Content_Length": "many"}, 400, "not a request of HTTP/1.1"),
        (b"x", {"Content_Length": "9" * 20}, 413, "at most 2 MB"),
        (b"x", {"Content_Length": "9" * 5000}, 400, "not a request of HTTP/1.1"),
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
        ({"video": "0" * 64}, 404, "not kept any more"),
        ({"video": "../../etc/passwd"}, 404, "not kept any more"),
        ({"video": "0", "question": ["a"]}, 400, "messages.0.content"),
        ({"video": "0", "ratio": "4"}, 400, "a budget here is a ratio"),
        ({"video": "0", "model": "other"}, 404, "there is no model 'other'"),
    ],
)
def test_questions_that_are_refused(app, asked, status, sentence):
    got, said = chat(app, **{"question": "a"} | asked)
    assert got == status
    assert sentence in said["error"]


def test_mistakes_in_asking(app, video):
    number = upload(app, video.read_bytes())[1]["video"]
    said = chat(app, number, " ")
    assert said == (400, {"error": "the question is empty; ask something about the video"})
    assert "ratio must be" in chat(app, number, "a", 1)[1]["error"]
    assert post(app, "/videos", b"x", Content_Type="text/plain")[0] == 415
    assert post(app, "/elsewhere", b"")[0] == 404
    assert post(app, "/v1/chat/completions", b"[" * 50_000, Content_Type="application/json")[0] == 400
    half = chat(app, number, "\ud800?")
    assert half[0] == 400
    assert request(app, "GET", "/explain/none/data")[0] == 404
    assert request(app, "GET", "/samples/99")[0] == 404


def test_a_port_that_is_taken_is_said(app):
    port = str(app.port)
    done = CliRunner().invoke(cli, ["app", "--model", str(CHECKPOINT), "--port", port, "--device", "cpu"])
    assert done.exit_code == 2
    assert f"cannot serve at 127.0.0.1:{port}" in " ".join(done.stderr.split())


def shown_reply(shown, place=-1):
    """Return the text of an answer once it is complete."""
    shown.page.wait_for_selector("#submit:visible:enabled")
    return shown.page.locator(".reply").nth(place).inner_text()


def asked_in(shown, question):
    """Ask a question on the page, and wait for the answer and its explanation."""
    page = shown.page
    page.wait_for_selector("#submit:visible:enabled")
    page.fill("#question", question)
    page.click("#submit")
    page.wait_for_selector(f".turn.shown .question:text-is({json.dumps(question)})")
    shown.settled()


def test_in_a_browser(app, video, tab, tmp_path):
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#status:has-text('10 frames')")
    asked_in(shown, "What <b>moves</b>?")
    assert page.locator("#first .question").all_inner_texts() == ["What <b>moves</b>?"]
    assert "wandering 'square'.mp4" in shown.text(".file")
    assert "aviot · ratio 4 · " in shown_reply(shown)
    before = shown.text(".facts")
    page.get_by_label("Compression ratio", exact=False).first.fill("1.5")
    page.click("text=Ask again")
    page.wait_for_selector(".reply:nth-of-type(2) [aria-pressed=true]:text-is('Where from')")
    assert "ratio 1.5" in shown_reply(shown)
    assert shown.text(".facts") != before
    asked_in(shown, "Why?")
    assert page.locator(".turn").count() == 2
    page.locator(".turn").first.locator("text=Compare").first.click()
    page.locator("#first .question").nth(1).wait_for()
    assert page.locator("#first .question").all_inner_texts() == ["Why?", "What <b>moves</b>?"]
    assert app.encoded == 1
    other = tab()
    other.page.goto(app.url)
    assert other.page.locator(".turn").count() == 0
    other.page.set_input_files("#file", str(written(tmp_path / "other.mp4", clip(5, seed=1))))
    asked_in(other, "Where?")
    assert "other.mp4" in other.text(".file")
    assert "wandering" in shown.text(".file")
    assert app.encoded == 2
    assert shown.complaints == other.complaints == []
    assert not [url for url in shown.requests if not url.startswith((app.url, "data:", "blob:"))]


def test_a_reload_keeps_the_conversation(app, video, tab):
    shown, other = tab(), tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    asked_in(shown, "What moves?")
    asked_in(shown, "Why?")
    page.fill("#question", "And then")
    before = shown.text("#turns")
    page.reload()
    shown.settled()
    assert shown.text("#turns") == before
    assert page.input_value("#question") == "And then"
    assert page.locator("#first .question").all_inner_texts() == ["Why?"]
    asked_in(shown, "And then?")
    assert page.locator(".turn").count() == 3
    assert app.encoded == 1
    other.page.goto(app.url)
    assert other.page.locator(".turn").count() == 0
    page.set_input_files("#file", str(video))  # the same video again: the conversation goes on
    page.wait_for_selector("#submit:enabled")
    assert page.locator(".turn").count() == 3
    assert shown.complaints == []


def test_earlier_turns_are_part_of_a_question(app, video, tab):
    shown = tab()
    sent = []
    shown.page.on("request", lambda request: sent.append(request.post_data) if "/v1/chat" in request.url else None)
    shown.page.goto(app.url)
    shown.page.set_input_files("#file", str(video))
    asked_in(shown, "What moves?")
    asked_in(shown, "Why?")
    first, second = (json.loads(each)["messages"] for each in sent)
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[0] == first[0]
    answer = shown.page.locator(".reply .text").first.inner_text()
    assert second[1]["content"] in (answer, "" if answer == "(an empty answer)" else answer)
    assert second[2]["content"] == "Why?"


def test_the_answer_comes_before_its_explanation(app, video, tab, monkeypatch):
    made, go_on = explanations._made, threading.Event()

    def late(*given):
        go_on.wait(30)
        return made(*given)

    monkeypatch.setattr(explanations, "_made", late)
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#submit:enabled")
    page.fill("#question", "What moves?")
    page.click("#submit")
    page.wait_for_selector("#explaining:visible")
    assert page.locator(".reply .text").inner_text() != ""
    assert "tokens" in shown.text(".reply .how")
    assert page.locator("#explorer > *").count() == 0
    go_on.set()
    shown.settled()
    assert page.locator("#explaining").is_hidden()
    assert shown.complaints == []


def test_progress_is_shown_and_reading_can_be_cancelled(app, tab, tmp_path):
    (tmp_path / "slow.gif").write_bytes(bombs.slow())
    shown = tab()
    page = shown.page
    page.goto(app.url)
    began = time.monotonic()
    page.set_input_files("#file", str(tmp_path / "slow.gif"))
    page.wait_for_selector("#progress:visible")
    assert time.monotonic() - began < 1
    page.wait_for_selector("#stage:has-text('Decoding')")
    assert app.service.answerer.videos.progress
    began = time.monotonic()
    page.click("#cancel")
    page.wait_for_selector("#status:has-text('Cancelled')")
    assert page.locator("#progress").is_hidden()
    assert eventually(lambda: not app.service.answerer.videos.progress, 1.0)
    assert eventually(lambda: not isolated._readers._busy, 1.0)
    assert time.monotonic() - began < 2
    assert shown.text("#problem") == ""
    assert page.locator("#submit").is_disabled()


def test_encoding_tells_its_progress_and_can_be_cancelled(app, video, tab, monkeypatch):
    """Hold the encoder before its second layer."""
    encode, go_on = videos.watched_encoder, threading.Event()

    @contextmanager
    def slowly(backbone, frames, tell):
        def told(share):
            time.sleep(0.3)
            tell(share)
            while share and not go_on.wait(0.05):
                tell(share)

        with encode(backbone, frames, told):
            yield

    monkeypatch.setattr(videos, "watched_encoder", slowly)
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#stage:has-text('Encoding · 50 %')")
    assert "s left" in shown.text("#stage")
    page.click("#cancel")
    page.wait_for_selector("#status:has-text('Cancelled')")
    assert eventually(lambda: not app.service.answerer.videos.progress, 1.0)
    go_on.set()
    assert app.encoded == 0
    page.set_input_files("#file", [])
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#status:has-text('10 frames')")
    assert app.encoded == 1


def test_an_answer_can_be_stopped(app, video, tab, monkeypatch):
    step = ContinuousEngine._step

    def slowly(self, batch):
        time.sleep(0.5)
        step(self, batch)

    monkeypatch.setattr(ContinuousEngine, "_step", slowly)
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#submit:enabled")
    page.fill("#question", "What moves?")
    page.click("#submit")
    page.click("#stop")
    page.wait_for_selector(".failed:has-text('Stopped.')")
    assert eventually(lambda: not app.service.answerer.decoder.running, 2.0)
    page.wait_for_selector("text=Ask again")


def test_a_sample_can_be_tried(app, tab):
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.click("#samples button:nth-of-type(1)")
    page.wait_for_selector("#status:has-text('is ready')")
    assert page.locator("#preview").is_visible()
    question = scene_with_questions(0).questions[0][0]
    assert page.input_value("#question") == question
    asked_in(shown, question)
    assert shown.complaints == []


def test_a_report_is_saved_and_opened_again(app, video, tab, tmp_path):
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    asked_in(shown, "What moves?")
    with page.expect_download() as saving:
        page.click("#save")
    saved = tmp_path / saving.value.suggested_filename
    assert saved.name == "wandering 'square' report.html"
    saving.value.save_as(saved)
    facts = shown.text(".facts")
    alone = tab()
    alone.page.goto(saved.as_uri())
    alone.settled()
    assert alone.text(".facts") == facts
    assert not [url for url in alone.requests if not url.startswith(("file:", "data:", "blob:"))]
    again = tab()
    again.page.goto(app.url)
    again.page.set_input_files("#report", str(saved))
    again.settled()
    assert again.text(".facts") == facts
    assert "wandering" in again.text(".file")
    assert again.page.locator("#submit").is_disabled()
    for name, text in (("other.html", "<p>no report</p>"), ("old.html", '<script id="report">{"format": 0}</script>')):
        (tmp_path / name).write_text(text)
        again.page.set_input_files("#report", str(tmp_path / name))
        again.page.wait_for_selector(f"#problem:has-text('“{name}”')")
    assert alone.complaints == again.complaints == []


def test_the_budget_can_be_automatic_and_the_method_another(app, video, tab):
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.select_option("#kind", "auto")
    assert page.locator("#ratio").is_hidden()
    asked_in(shown, "What moves?")
    assert "automatic budget" in shown_reply(shown)
    page.select_option("#method", "uniform")
    page.select_option("#kind", "ratio")
    page.click("text=Ask again")
    page.wait_for_selector(".reply:nth-of-type(2) [aria-pressed=true]:text-is('Where from')")
    assert "uniform · ratio 4" in shown_reply(shown)
    assert shown.complaints == []


def test_a_camera_is_watched_and_asked(app, browser):
    """Chromium's fake camera stands in for one."""
    args = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    chromium = browser.browser_type.launch(executable_path=str(CHROMIUM), args=args)
    page, said = chromium.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(app.url)
        page.click("#camera")
        page.wait_for_selector("#stage:text-matches('Watching · [3-9] frames seen')")
        assert page.locator("#preview").is_visible()
        (held,) = app.service.answerer.streams._held.values()
        assert eventually(lambda: held.session.status().encoded > 0)
        page.fill("#question", "What is shown?")
        page.click("#submit")
        page.wait_for_selector(".reply .how:has-text('tokens')")
        assert page.locator(".reply .text").inner_text() != ""
        assert page.locator(".failed").count() == page.locator("text=Where from").count() == 0
        page.click("#cancel")
        page.wait_for_selector("#submit:disabled")
        assert eventually(lambda: len(app.service.answerer.streams) == 0)
        page.click("#camera")
        page.wait_for_selector("#stage:has-text('Watching')")
        page.goto("about:blank")
        assert eventually(lambda: len(app.service.answerer.streams) == 0)
    finally:
        chromium.close()
    assert said == []


def test_a_video_that_is_not_kept_any_more_is_said(app, video, tab):
    shown = tab()
    page = shown.page
    page.goto(app.url)
    page.set_input_files("#file", str(video))
    page.wait_for_selector("#submit:enabled")
    kept = app.service.answerer.videos.kept
    for key in list(kept._held):
        kept._drop(key)
    page.fill("#question", "What moves?")
    page.click("#submit")
    page.wait_for_selector(".failed:has-text('not kept any more; upload it again')")
    assert page.locator("#explorer > *").count() == 0


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
        asked_in(shown, "What is the woman doing?")
        assert shown.text("#explorer .notice") == FOREIGN
        assert "bundled demo model" in shown.text("#explorer .model")
        assert not shown.overflows()
        assert shown.complaints == []


def test_the_notice_comes_with_the_upload_and_with_the_report(loaded, bundled, video):
    with serving(loaded) as app:
        found = upload(app, video.read_bytes())[1]
        assert found["notice"] == FOREIGN
        report = ask(app, found["video"], ["Why?"], 5)[1]
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


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_the_app(app, tab, video, scheme, size):
    shown = tab(size, scheme)
    page = shown.page
    page.goto(app.url)
    assert serious_faults(page) == []
    page.set_input_files("#file", files=[{"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}])
    page.wait_for_selector("#problem:not(:empty)")
    assert serious_faults(page) == []
    page.set_input_files("#file", str(video))
    asked_in(shown, "What moves?")
    assert serious_faults(page) == []
    assert not shown.overflows()
    top = page.locator("#question").bounding_box()
    assert top["y"] + top["height"] < size[1] or size[0] < 400


def test_without_the_serve_extra_the_command_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = CliRunner().invoke(cli, ["app", "--model", str(CHECKPOINT)])
    assert done.exit_code == 2
    assert "fastapi is not installed; in a clone: pip install --constraint constraints.txt '.[serve]'" in " ".join(
        done.stderr.split()
    )
