"""Fixtures: a tiny model, reports of a generated video, and a browser if one is installed."""

import json

import pytest
from showing import CHECKPOINT, CHROMIUM, DESKTOP, PHONE, QUESTIONS, Case, Shown, clip

from aviot import Budget, VideoLM
from aviot.explain.outputs import build_report
from aviot.explain.page import page_of
from aviot.explain.pictures import open_with_pictures
from aviot.explain.study import Asking, Setting
from aviot.models import AviotForConditionalGeneration, AviotProcessor


@pytest.fixture(scope="session")
def loaded():
    return AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval(), AviotProcessor.from_pretrained(CHECKPOINT)


@pytest.fixture
def bundled(monkeypatch):
    """Take the tiny model for the bundled one: it is recognised by its weights."""
    monkeypatch.setattr("aviot.bundled.FOLDER", CHECKPOINT)


@pytest.fixture(scope="session")
def explained(loaded):
    """Return a function that makes a report of a clip."""

    def make(frames, questions=QUESTIONS[:1], ratio=4.0, compressor="aviot", also=(), **shape):
        session, pictures = open_with_pictures(VideoLM(*loaded), clip(frames, **shape), source_fps=2)
        others = tuple(Setting(name, Budget(ratio=ratio)) for name in also)
        views, asking = [], Asking(tuple(questions), Budget(ratio=ratio), compressor, 3, others)
        study, report = build_report(session, pictures, asking, views.append)
        return Case(report, study, session, views)

    return make


@pytest.fixture(scope="session")
def case(explained):
    """Return a report of two questions about twelve frames."""
    return explained(12, QUESTIONS)


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser):
    """Return a function that opens tabs of a size, light or dark."""
    contexts = []

    def make(size=DESKTOP, scheme="light"):
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, has_touch=size == PHONE
        )
        contexts.append(context)
        shown = Shown(context.new_page())
        shown.page.set_default_timeout(20_000)
        shown.page.on("console", lambda message: shown.complaints.append(message.text))
        shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        return shown

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def opened(tab, tmp_path):
    """Return a function that opens a report from disk."""

    def make(report, size=DESKTOP, scheme="light", name="report.html"):
        file = tmp_path / name
        file.write_text(page_of(json.loads(json.dumps(report))), encoding="utf-8")
        shown = tab(size, scheme)
        shown.page.goto(file.as_uri())
        shown.settled()
        return shown

    return make
