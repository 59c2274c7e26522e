"""What a person sees of a reproduction while it runs: phases, batches, rows, time left, and that it resumes."""

from io import StringIO

import pytest
from rich.console import Console

from aviot_lab.reproduce.progress import SECONDS_BETWEEN_LINES, BatchCost, Pace, RunProgress, duration

SHEETS = [BatchCost("short", 10.0)] * 3 + [BatchCost("long", 40.0)]


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Terminal(StringIO):
    def isatty(self):
        return True


def shown(width=80, *, terminal):
    return Console(width=width, file=Terminal() if terminal else StringIO(), color_system=None, legacy_windows=False)


def test_time_left_follows_from_what_each_kind_of_batch_took():
    pace = Pace(SHEETS)
    assert pace.seconds_left() is None
    assert pace.seconds_left(spent=1.0, share=0.5) == pytest.approx(1 + 2 * 2 + 8)  # 5 of 10, then 20 and 40
    pace.add(4.0)
    assert pace.seconds_left() == pytest.approx(4 + 4 + 16)
    assert pace.seconds_left(spent=6.0, share=0.5) == pytest.approx((5 + 10 + 40) * 10 / 15)
    pace.add(4.0)
    pace.add(4.0)
    assert pace.seconds_left() == pytest.approx(16)
    assert pace.seconds_left(spent=30.0, share=0.5) == pytest.approx(30)  # long batches have a pace of their own now
    pace.add(60.0)
    assert pace.seconds_left() == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3600, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_lines_come_at_once_and_then_now_and_then(clock, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a build server may set, where a bar would be hundreds of lines
    console = shown(terminal=False)
    with RunProgress(console, clock) as progress:
        progress.phase("loading the model")
        progress.phase("loading the model")
        progress.begin(SHEETS, [])
        progress.drawing()
        for row in range(1, 9):
            progress.answering(row, 8)
            clock.now += SECONDS_BETWEEN_LINES / 2
        progress.finish_batch(4 * SECONDS_BETWEEN_LINES, "AVIOT 50.0%")
        progress.phase("writing the report")
    assert console.file.getvalue().splitlines() == [
        "loading the model",
        "drawing batch 1 of 4; 0 s so far",
        "batch 1 of 4: answering row 3 of 8; 30 s so far, about 13 min 30 s left",
        "batch 1 of 4: answering row 5 of 8; 1 min 0 s so far, about 13 min 0 s left",
        "batch 1 of 4: answering row 7 of 8; 1 min 30 s so far, about 12 min 30 s left",
        "batch 1 of 4 done; 2 min 0 s so far, about 12 min 0 s left; AVIOT 50.0%",
        "writing the report",
    ]


def test_a_resumed_run_says_so_and_how_long_it_will_take(clock):
    console = shown(terminal=False)
    with RunProgress(console, clock) as progress:
        progress.begin(SHEETS, [5.0, 7.0])
        progress.drawing()
    assert console.file.getvalue().splitlines() == [
        "resuming: 2 of 4 batches are done",
        "drawing batch 3 of 4; 0 s so far, about 30 s left",
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_gets_a_bar_from_the_first_moment(clock, width, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console = shown(width, terminal=True)

    def line():
        console.file.seek(0)
        console.file.truncate()
        console.print(progress._bar.get_renderable())
        (text,) = console.file.getvalue().splitlines()
        return text

    with RunProgress(console, clock) as progress:
        progress._bar.stop()  # no second writer beside the assertions
        assert line().startswith("loading the model ━")
        progress.begin(SHEETS, [5.0, 7.0])
        assert "resuming: 2 of 4 batches are done" in console.file.getvalue()
        progress.drawing()
        assert line().startswith("drawing batch 3 of 4 ━")
        clock.now += 3
        progress.answering(9, 16)
        assert line().startswith("batch 3 of 4: answering row 9 of 16 ━")
        assert "about 27 s left" in line()
        progress.finish_batch(6.0, "uncompressed 50.0% [20.0%, 80.0%]")
        assert line().startswith("batch 3 of 4 done ━")
        assert "about 24 s left" in line()
        assert "uncom" in line()
        assert ("[20.0%, 80.0%]" in line()) == (width == 200)
