"""The app in a browser, with a video of 60 seconds: python benchmarks/app.py --help

Measures what somebody who uses it waits for: the first sign of progress, the first letter of an answer, the end of a
cancelled reading, and a reload; and how the memory of the app grows over many questions. Looks at every page for
messages on its console, requests to elsewhere, and faults that axe-core calls serious. Without --video a file of 720p
is made first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import av
import numpy as np

SIZES, SCHEMES = ((390, 844), (1440, 900)), ("light", "dark")
QUESTIONS = ("What is shown?", "What moves?", "Which colour is it?", "Where does it end?", "How many are there?")


def write_video(path, seconds=60, fps=30, width=1280, height=720):
    """Write a disc that moves over a textured background, with noise as of a camera."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    ground = random.integers(60, 160, (height // 8, width // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    noise = [random.integers(0, 24, (height, width, 1), np.uint8) for _ in range(8)]
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=fps, options={"preset": "veryfast", "crf": "23"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(seconds * fps):
            frame = ground + noise[number % len(noise)]
            x = 100 + (width - 200) * (number % (10 * fps)) // (10 * fps)
            disc = (columns - x) ** 2 + (rows - height // 2) ** 2 < 90**2
            frame[disc] = (230, 40 + number * 180 // (seconds * fps), 60)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode(None))


@contextmanager
def serving(model):
    """Run the app; yield its process and address."""
    options = [] if model is None else ["--model", str(model)]
    command = [sys.executable, "-m", "aviot", "app", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(60)


def memory(process):
    """Return the megabytes that the app's own process holds."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def faults(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")]


class Visit:
    """One tab, with its console messages and requests."""

    def __init__(self, browser, url, size, scheme):
        shape = {"width": size[0], "height": size[1]}
        self.page = browser.new_context(viewport=shape, color_scheme=scheme, accept_downloads=True).new_page()
        self.page.set_default_timeout(600_000)
        self.url, self.said, self.asked = url, [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def seconds_until(self, selector, begin):
        """Return the seconds from an action until something is on the page."""
        start = time.perf_counter()
        begin()
        self.page.wait_for_selector(selector)
        return time.perf_counter() - start

    def choose(self, file):
        self.page.set_input_files("#file", str(file))

    def ask(self, question, explained=True):
        """Ask; return the seconds until the first letter of the answer, and until its explanation."""
        page = self.page
        page.wait_for_selector("#submit:visible:enabled")
        page.fill("#question", question)
        turn = page.locator(".turn").count() + 1
        start = time.perf_counter()
        page.click("#submit")
        page.wait_for_selector(f".turn:nth-child({turn}) .text:not(:empty)")
        first = time.perf_counter() - start
        early = page.locator(f".turn.shown:nth-child({turn})").count() == 0
        if explained:
            page.wait_for_selector(f".turn.shown:nth-child({turn})")
        return first, time.perf_counter() - start, early

    def check(self, where):
        """Print what is wrong with the page."""
        elsewhere = [url for url in self.asked if not url.startswith((self.url, "data:", "blob:"))]
        wide = self.page.evaluate("() => document.documentElement.scrollWidth > document.documentElement.clientWidth")
        print(f"{where}: console {self.said}, elsewhere {elsewhere}, axe {faults(self.page)}, too wide {wide}")


def measure(browser, process, url, options, folder):
    visit = Visit(browser, url, *((1440, 900), "light"))
    print(
        f"first progress after {visit.seconds_until('#stage:not(:empty)', lambda: visit.choose(options.video)):.2f} s"
    )
    start, stages = time.perf_counter(), {}
    while visit.page.locator("#submit:enabled").count() == 0:
        text = visit.page.locator("#stage").inner_text()
        stages.setdefault(text.partition(" ")[0], round(time.perf_counter() - start, 1))
        time.sleep(0.05)
    print(f"ready after {time.perf_counter() - start:.1f} s; stages began at {json.dumps(stages)}")
    first, explained, early = visit.ask(QUESTIONS[0])
    print(f"first letter after {first:.2f} s, before any explanation: {early}; explained after {explained:.1f} s")
    turns = visit.page.inner_text("#turns")
    again = visit.seconds_until("#explorer[data-ready]", visit.page.reload)
    print(
        f"conversation after a reload is the same: {visit.page.inner_text('#turns') == turns}; drawn in {again:.1f} s"
    )
    visit.check("after a reload")
    cancel(browser, url, options, folder)
    for size in SIZES:
        for scheme in SCHEMES:
            other = Visit(browser, url, size, scheme)
            other.choose(options.video)
            other.ask(QUESTIONS[1])
            other.check(f"{size[0]}x{size[1]} {scheme}")
            other.page.context.close()
    many(visit, process, options.questions)
    visit.check(f"after {options.questions} questions")


def cancel(browser, url, options, folder):
    """Cancel while another file is decoded and while it is encoded; send a broken one."""
    visit = Visit(browser, url, (1440, 900), "light")
    data = options.video.read_bytes()
    for number, stage in enumerate(("Decoding", "Encoding")):
        other = folder / f"other{number}.mp4"
        other.write_bytes(data + bytes([number]))  # another content, so that it is read again
        visit.choose(other)
        visit.page.wait_for_selector(f"#stage:has-text('{stage}')")
        seconds = visit.seconds_until("#status:has-text('Cancelled')", lambda: visit.page.click("#cancel"))
        print(f"cancelled while {stage.lower()} in {seconds:.2f} s")
    broken = folder / "broken.mp4"
    broken.write_bytes(data[:1000])
    visit.seconds_until("#problem:not(:empty)", lambda: visit.choose(broken))
    print(f"a broken file: {visit.page.inner_text('#problem')}")
    visit.page.context.close()


def many(visit, process, count):
    """Ask many questions in a row, each after all earlier ones, and print the app's memory on the way."""
    sizes = []
    for number in range(count):
        visit.ask(f"{QUESTIONS[number % len(QUESTIONS)]} ({number})")
        sizes.append(memory(process))
        if number % 10 == 9:
            print(f"{number + 1} questions: {sizes[-1]:.0f} MB")
    half = len(sizes) // 2
    print(f"memory: at most {max(sizes[:half]):.0f} MB in the first half, {max(sizes[half:]):.0f} MB in the second")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint; default: the bundled demo model")
    parser.add_argument("--video", type=Path, help="a video file of about a minute")
    parser.add_argument("--questions", type=int, default=50)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, serving(options.model) as (process, url), sync_playwright() as driver:
        if options.video is None:
            options.video = Path(folder) / "minute.mp4"
            write_video(options.video)
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        measure(browser, process, url, options, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
