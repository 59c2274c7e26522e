"""Cost of a report without the model, screenshots and an animation of it: python benchmarks/explorer.py --help

Times are CPU seconds of this process and wall-clock seconds, since other work may share the machine. The model is a
tiny one with random weights unless --model names another. The pictures in the documents are made by
--model src/aviot/bundled/weights --frames 64 --scene 3 --screenshots docs/images --animation docs/images/explorer.gif
"""

import argparse
import json
import resource
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image

from aviot.app.run import AppSettings, ServingApp
from aviot.budget import Budget
from aviot.explain.outputs import Outputs, explain
from aviot.explain.pictures import open_with_pictures
from aviot.explain.study import Asking, Setting
from aviot.methods.registry import DEFAULT
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.serve.run import At
from aviot.session import VideoLM, VideoSession
from aviot_lab.world import World, WorldConfig, save

ROOT = Path(__file__).parents[1]


class Clock:
    """Seconds inside and outside the model: on the clock, and of the CPU."""

    def __init__(self):
        self.model = [0.0, 0.0]

    @staticmethod
    def now():
        return time.perf_counter(), time.process_time()

    def counting(self, call):
        def counted(*arguments, **options):
            before = self.now()
            try:
                return call(*arguments, **options)
            finally:
                self.model = [spent + b - a for spent, a, b in zip(self.model, before, self.now(), strict=True)]

        return counted


def peak():
    """MiB of this process at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(options, folder):
    world = World(WorldConfig(seed=0, frames=(options.frames,)))
    scene = world.scene("test", options.scene)
    video = folder / "world.mp4"
    save(scene, video)
    questions = options.question or [world.question(scene, n).open.splitlines()[0] for n in range(2)]
    model = AviotForConditionalGeneration.from_pretrained(options.model).eval()
    processor, clock = AviotProcessor.from_pretrained(options.model), Clock()
    for name in ("compress", "answer"):
        setattr(VideoSession, name, clock.counting(getattr(VideoSession, name)))
    VideoLM.open = clock.counting(VideoLM.open)
    print(f"loaded: {peak():.0f} MiB")
    start, page = clock.now(), folder / "report.html"
    lm = VideoLM(model, processor)
    session, pictures = open_with_pictures(lm, video)
    for question in (*questions, None):
        session.answer(questions[0], session.compress(question, budget=options.ratio), max_new_tokens=16)
    print(f"the model alone, the same compressions and answers: {peak():.0f} MiB")
    also = tuple(Setting(name, Budget(ratio=options.ratio)) for name in options.against)
    asking = Asking(tuple(questions), Budget(ratio=options.ratio), DEFAULT, 16, also)
    found, _ = explain(session, pictures, asking, Outputs(page, options.figures, animation=options.animation))
    spent = [b - a - inside for a, b, inside in zip(start, clock.now(), clock.model, strict=True)]
    print(f"{len(session.video)} frames, {len(found.questions)} questions, ratio {options.ratio:g}")
    print(f"besides the model: {spent[0]:.1f} s on the clock, {spent[1]:.1f} s of CPU; {peak():.0f} MiB in all")
    print(f"page: {page.stat().st_size / 1e6:.2f} MB")
    if options.screenshots is not None:
        photograph_app(lm, video, questions, options.screenshots)
    return page


def keep(what, path):
    """A screenshot of a page or of a part of it, in few colours."""
    what.screenshot(path=path)
    with Image.open(path) as shot:
        few = shot.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def photograph_app(lm, video, questions, out):
    """The app after two questions were asked."""
    from playwright.sync_api import sync_playwright

    app = ServingApp(lm, AppSettings(max_new_tokens=16), At(port=0))
    serving = threading.Thread(target=app.run, daemon=True)
    serving.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
        page.set_default_timeout(600_000)
        page.goto(app.url)
        page.set_input_files("#file", str(video))
        for question in questions:
            page.wait_for_selector("#submit:visible:enabled")
            page.fill("#question", question)
            page.click("#submit")
            page.wait_for_selector(f".turn.shown .question:text-is({json.dumps(question)})")
        page.wait_for_timeout(500)
        keep(page, out / "app.png")
        browser.close()
    app.end()
    serving.join()


def photograph(page, out):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        start = time.perf_counter()
        desk = browser.new_page(viewport={"width": 1200, "height": 800}, color_scheme="light")
        desk.goto(page.as_uri())
        desk.wait_for_selector("#explorer[data-ready]")
        print(f"opened in {time.perf_counter() - start:.2f} s")
        if out is None:
            return browser.close()
        desk.wait_for_timeout(500)
        keep(desk, out / "explorer.png")
        for name in ("support", "versus"):
            keep(desk.locator(f"#{name}"), out / f"explorer-{name}.png")
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        phone.goto(page.as_uri())
        phone.wait_for_selector("#explorer[data-ready]")
        phone.wait_for_timeout(500)
        keep(phone, out / "explorer-phone.png")
        return browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "tests" / "golden" / "checkpoint")
    parser.add_argument("--frames", type=int, default=224)
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--scene", type=int, default=12, help="number of a scene of the world's test split")
    parser.add_argument("--question", action="append", help="instead of the scene's own; repeat")
    parser.add_argument("--against", action="append", default=[], help="method to compare with; repeat")
    parser.add_argument("--figures", type=Path, help="folder for the paper's kinds of figure")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the page")
    parser.add_argument("--animation", type=Path, help="GIF of the page to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = measure(options, Path(folder))
        photograph(page, options.screenshots)


if __name__ == "__main__":
    main()
