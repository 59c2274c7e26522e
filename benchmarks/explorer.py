"""Cost of a report without the model, screenshots and an animation of it: python benchmarks/explorer.py --help

Times are CPU seconds of this process and wall-clock seconds, since other work may share the machine. The model is a
tiny one with random weights unless --model names another. The README's animation is the page of `aviot demo`, made by
--model src/aviot/bundled/weights --frames 64 --scene 3 --animation docs/images/explorer.gif
"""

import argparse
import io
import resource
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image

from aviot.budget import Budget
from aviot.explain.outputs import Outputs, explain
from aviot.explain.pictures import open_with_pictures
from aviot.explain.server import App, Limits
from aviot.explain.study import Asking
from aviot.explain.videos import Videos
from aviot.methods.registry import DEFAULT
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.session import VideoLM, VideoSession
from aviot_lab.world import World, WorldConfig, save

ROOT = Path(__file__).parents[1]
# The animation shows the controls, both answers, the map, and the curve and strongest frames of the chosen support.
FOCUS = """
#explorer > :not(.chooser, #answers, #map, #support), .lead, .legend, details, #map-title ~ p, #answers h2, #answers h3,
.choices > :not(:first-child), .choices span:not(:last-child), #support h2, .gallery ~ *, figcaption
{ display: none !important; }
section { margin: 0 0 12px !important; padding: 4px 0 0 !important; border: 0 !important; }
.chooser { position: static !important; margin-top: 0 !important; }
.gallery { grid-template-columns: repeat(4, 150px) !important; }
#support-number { outline: none !important; }
"""
WIDTH = 720  # pixels of the animation
HOLD_MS, STEP_MS = 1500, 450


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
    asking = Asking(tuple(questions), Budget(ratio=options.ratio), DEFAULT, 16)
    found, _ = explain(session, pictures, asking, Outputs(page, options.figures))
    spent = [b - a - inside for a, b, inside in zip(start, clock.now(), clock.model, strict=True)]
    print(f"{len(session.video)} frames, {len(found.questions)} questions, ratio {options.ratio:g}")
    print(f"besides the model: {spent[0]:.1f} s on the clock, {spent[1]:.1f} s of CPU; {peak():.0f} MiB in all")
    print(f"page: {page.stat().st_size / 1e6:.2f} MB")
    if options.screenshots is not None:
        photograph_app(Videos(lm, 16), video, questions[0], options.screenshots)
    return page


def keep(what, path):
    """A screenshot of a page or of a part of it, in few colours."""
    what.screenshot(path=path)
    with Image.open(path) as shot:
        few = shot.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def photograph_app(videos, video, question, out):
    """The app after a question was asked."""
    from playwright.sync_api import sync_playwright

    with App(("127.0.0.1", 0), videos, Limits(10**9), print) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 960, "height": 1000}, color_scheme="light")
        page.goto(server.url)
        page.set_input_files("#file", str(video))
        page.fill("#question", question)
        page.wait_for_selector("#submit:enabled", timeout=600_000)
        page.click("#submit")
        page.wait_for_selector("#explorer[data-ready]", timeout=600_000)
        page.wait_for_timeout(500)
        keep(page, out / "app.png")
        browser.close()
        server.shutdown()


def photograph(page, out):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        start = time.perf_counter()
        desk = browser.new_page(viewport={"width": 960, "height": 800}, color_scheme="light")
        desk.goto(page.as_uri())
        desk.wait_for_selector("#explorer[data-ready]")
        print(f"opened in {time.perf_counter() - start:.2f} s")
        if out is None:
            return browser.close()
        desk.wait_for_timeout(500)
        keep(desk, out / "explorer.png")
        desk.add_style_tag(content=".chooser { position: static !important; }")
        for name in ("map", "support", "paths", "compare"):
            keep(desk.locator(f"#{name}"), out / f"explorer-{name}.png")
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        phone.goto(page.as_uri())
        phone.wait_for_selector("#explorer[data-ready]")
        phone.locator("#support").scroll_into_view_if_needed()
        phone.evaluate("window.scrollTo(0, document.querySelector('#support').offsetTop - 120)")
        phone.wait_for_timeout(500)
        keep(phone, out / "explorer-phone.png")
        return browser.close()


def animate(page, out):
    """Write a GIF in which supports are chosen for the first question, then for the second."""
    from playwright.sync_api import sync_playwright

    shots, durations = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 900, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.add_style_tag(content=FOCUS)
        last = int(tab.locator("#support-number").get_attribute("max"))
        for condition in (0, 3):  # each question, compressed for itself
            tab.locator("#condition").select_option(str(condition))
            for support in (None, *range(1, last + 1, 2)):
                if support is not None:
                    tab.locator("#support-number").fill(str(support))
                ready = f"{condition} " if support is None else f"{condition} {support} "
                tab.wait_for_selector(f'#explorer[data-ready^="{ready}"]')
                tab.wait_for_timeout(150)
                shots.append(Image.open(io.BytesIO(tab.locator("#explorer").screenshot())).convert("RGB"))
                durations.append(HOLD_MS if support is None else STEP_MS)
        browser.close()
    height = max(shot.height for shot in shots) * WIDTH // shots[0].width
    sheet = Image.new("RGB", (WIDTH, height * len(shots)), shots[0].getpixel((0, 0)))
    for n, shot in enumerate(shots):
        sheet.paste(shot.resize((WIDTH, shot.height * WIDTH // shot.width), Image.Resampling.LANCZOS), (0, n * height))
    sheet = sheet.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # one palette for all frames
    frames = [sheet.crop((0, n * height, WIDTH, (n + 1) * height)) for n in range(len(shots))]
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    print(f"{out}: {len(frames)} frames, {sum(durations) / 1000:g} s, {out.stat().st_size / 1e6:.2f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "tests" / "golden" / "checkpoint")
    parser.add_argument("--frames", type=int, default=224)
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--scene", type=int, default=12, help="number of a scene of the world's test split")
    parser.add_argument("--question", action="append", help="instead of the scene's own; repeat")
    parser.add_argument("--figures", type=Path, help="folder for the paper's kinds of figure")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the page")
    parser.add_argument("--animation", type=Path, help="GIF of the page to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = measure(options, Path(folder))
        photograph(page, options.screenshots)
        if options.animation is not None:
            animate(page, options.animation)


if __name__ == "__main__":
    main()
