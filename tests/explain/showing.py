"""Helpers for tests of the explorer: a generated video, and a page in a browser with its console messages."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from aviot.session import VideoSession

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"
CHROMIUM = Path("/usr/bin/chromium")
QUESTIONS = ("What is it?", "Why is <script>window.broken = 1</script> so & 'so'?")
DESKTOP, PHONE = (1280, 900), (360, 740)


def clip(frames, height=60, width=80, seed=0):
    """Return a generated video of a square that moves over noise."""
    generator = np.random.default_rng(seed)
    video = generator.integers(60, 120, (frames, height, width, 3), dtype=np.uint8)
    for n in range(frames):
        side, x = min(height, width) // 3, n * (width - width // 3) // max(1, frames - 1)
        video[n, side : 2 * side, x : x + side] = (230, 40 + 180 * n // frames, 60)
    return video


@dataclass(frozen=True)
class Case:
    """A report with the study, the session and the views behind it."""

    report: dict
    study: object
    session: VideoSession
    views: list


@dataclass
class Shown:
    """A page in a browser, with its console messages and requests."""

    page: object
    complaints: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def text(self, selector):
        return self.page.locator(selector).inner_text().replace("\u00a0", " ")

    def settled(self):
        self.page.wait_for_selector("#explorer[data-ready]")
        return self.page.get_attribute("#explorer", "data-ready")

    def ready(self, condition, support, frame, patch=""):
        self.page.wait_for_selector(f'#explorer[data-ready="{condition} {support} {frame} {patch}"]')

    def overflows(self):
        return self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def serious_faults(page):
    """Return the serious and critical faults that axe-core finds, by rule and element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    found = axe.Axe().run(page).response["violations"]
    return [
        (fault["id"], node["target"], node.get("failureSummary"))
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:3]
    ]
