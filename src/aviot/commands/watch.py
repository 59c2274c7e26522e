"""`aviot watch`."""

import math
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from aviot.commands.expand import expand_groups
from aviot.commands.groups import AnswerBudget, ModelOptions
from aviot.commands.options import Fps, MaxNewTokens, MethodOption
from aviot.commands.prompt import StatusPrompt, clock
from aviot.commands.terminal import hints, mistakes, refuse, say, working
from aviot.methods.registry import DEFAULT
from aviot.utils.printing import json_text

if TYPE_CHECKING:
    from aviot.session import AskOptions
    from aviot.streaming.session import StreamingSession
    from aviot.streaming.sources.base import Player
    from aviot.utils.journal import Journal

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
STOP_SECONDS = 1.0  # that a source has to end after the last answer; one that waits for a pipe is left alone

SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A video file, a folder that gets images, - for a video on standard input, a camera such as /dev/video0, "
        "or an address (rtsp://..., http://...; see --network).",
        show_default=False,
    ),
]
Asked = Annotated[
    list[str] | None,
    typer.Option(
        "--question",
        "-q",
        help="Question to ask every --ask-every, or once at the end; repeat for several. Default: questions are typed "
        "in while the stream runs.",
        show_default=False,
    ),
]
AskEvery = Annotated[
    str | None,
    typer.Option("--ask-every", metavar="TIME", help="Time of the stream between two answers: 10s, 2m, 1h."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Append the answers to this JSONL file. Default: print them on stdout."),
]
Speed = Annotated[
    float,
    typer.Option(help="Speed of a file: 1 is its own, 8 eight times that; inf: as fast as frames can be encoded."),
]
Follow = Annotated[bool, typer.Option("--follow", help="The file is still being written: wait for more of it.")]
Raw = Annotated[
    str | None,
    typer.Option(metavar="WIDTHxHEIGHT", help="Standard input has raw RGB frames of this size, 3 bytes per pixel."),
]
SourceRate = Annotated[
    float | None,
    typer.Option(
        "--source-fps",
        help="Frame rate of a folder's images or of raw frames. Default: images are sampled already, and raw frames "
        "have the time of their arrival.",
        show_default=False,
    ),
]
Network = Annotated[bool, typer.Option("--network", help="Allow a connection to the address given as SOURCE.")]
EndAfter = Annotated[
    str | None,
    typer.Option(
        "--end-after",
        metavar="TIME",
        help="End a growing file, folder or camera after this time without anything new. Default: never; 60s for "
        "addresses.",
        show_default=False,
    ),
]
MemoryTokens = Annotated[
    int | None,
    typer.Option(
        "--memory-tokens",
        help="Size of the memory in decoder tokens. Default: as many frames as the checkpoint samples from a file.",
        show_default=False,
    ),
]
MemoryBytes = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Size of the memory in bytes instead: 500MB, 2GB."),
]
State = Annotated[
    Path | None,
    typer.Option(
        help="Save the memory to this file, every --save-every and at the end, and go on from it if it exists.",
        show_default=False,
    ),
]
SaveEvery = Annotated[str, typer.Option("--save-every", metavar="TIME", help="Time between two saves.")]


@expand_groups
def watch(
    source: SourceName,
    *,
    question: Asked = None,
    ask_every: AskEvery = None,
    output: Output = None,
    speed: Speed = 1.0,
    follow: Follow = False,
    raw: Raw = None,
    source_fps: SourceRate = None,
    network: Network = False,
    end_after: EndAfter = None,
    memory_tokens: MemoryTokens = None,
    memory: MemoryBytes = None,
    state: State = None,
    save_every: SaveEvery = "1m",
    fps: Fps = None,
    budget: AnswerBudget,
    method: MethodOption = DEFAULT,
    max_new_tokens: MaxNewTokens = 64,
    model: ModelOptions,
) -> None:
    """Watch a video without an end, and answer questions about now and before from a memory of constant size.

    In a terminal, questions are typed in while the stream runs, under a line with its time, the memory, and the frames
    seen and dropped. With -q, answers are JSON lines. Nothing waits for the model: frames that it cannot encode in time
    are dropped evenly, and counted.

    Example: aviot watch street.mp4 --speed 8 -q "How many cars are there?" --ask-every 1m -o answers.jsonl
    """
    with mistakes():
        plan = WatchPlan(
            questions=tuple(question or ()),
            every=math.inf if ask_every is None else seconds_of("--ask-every", ask_every),
            output=output,
            state=state,
            save_every=seconds_of("--save-every", save_every),
        )
        plan.check(source)
        limit = budget.chosen
        limits: dict[str, Any] = {"memory_tokens": memory_tokens, "memory_bytes": _bytes(memory)}
        chosen = model.choice()
        from aviot.methods.registry import check_name
        from aviot.streaming.sources.opening import NetworkRefusedError, SourceOptions, check_source

        check_name(method)
        options = SourceOptions(
            follow=follow,
            raw=_size(raw),
            source_fps=source_fps,
            network=network,
            end_after=None if end_after is None else seconds_of("--end-after", end_after),
        )
        with hints({NetworkRefusedError: "--network"}):
            check_source(source, options)
        if not speed > 0:
            raise ValueError(f"--speed must be a number above 0, got {speed:g}")
        how: AskOptions = {"budget": limit, "method": method, "max_new_tokens": max_new_tokens}
        with plan.journal() as journal:
            with working() as report:
                lm = chosen.load(report)
                session = plan.session(lm, fps=fps, **limits)
                player = _player(session, source, options, speed)
            with _playing(session, player, plan):
                if plan.questions:
                    _answer_by_schedule(session, player, plan, how, journal)
                else:
                    StatusPrompt(session, player, how).run()
            say(_summary(session))
        if player.error is not None:
            _fail(player.error)


@dataclass(frozen=True)
class WatchPlan:
    """The questions, the seconds between two times to ask them, and the files for answers and state."""

    questions: tuple[str, ...]
    every: float
    output: Path | None
    state: Path | None
    save_every: float

    def check(self, source: str) -> None:
        """Raise ValueError for options that do not go together, and for outputs that cannot be written."""
        from aviot.request import check_question
        from aviot.utils.files import check_output

        for question in self.questions:
            check_question(question)
        if not self.questions:
            if math.isfinite(self.every) or self.output is not None:
                raise ValueError("--ask-every and --output are for questions given with -q; give one")
            if source == "-" or not sys.stdin.isatty():
                raise ValueError("questions can only be typed in a terminal; give them with -q, or run in one")
        if self.state is not None:
            check_output(self.state)
        if self.output is not None:
            check_output(self.output)

    def journal(self) -> "Any":
        """Return the file of answers, open for appending, or nothing."""
        from aviot.utils.journal import Journal

        return nullcontext() if self.output is None else Journal(self.output)

    def session(self, lm: Any, *, fps: float | None, **limits: Any) -> "StreamingSession":
        """Return a new session, or the one that was saved."""
        from aviot.streaming.session import StreamingSession

        if self.state is None or not self.state.exists():
            return StreamingSession(lm, fps=fps, **limits)
        if any(value is not None for value in limits.values()):
            raise ValueError(f"{self.state} has a memory of its own size; leave --memory and --memory-tokens out")
        session = StreamingSession.load(lm, self.state, fps=fps)
        say(f"going on at {clock(session.status().time)} from {self.state}")
        return session


@contextmanager
def _playing(session: "StreamingSession", player: "Player", plan: WatchPlan) -> Iterator[None]:
    """Play during the block, saving now and then; at its end stop, and save once more."""
    from aviot.streaming.saving import Saver

    with ExitStack() as stack:
        if plan.state is not None:
            stack.enter_context(Saver(session.save, plan.state, plan.save_every, lambda: session.status().supports > 0))
        stack.callback(session.close)
        stack.callback(player.stop, STOP_SECONDS)
        player.start()
        yield


def _player(session: "StreamingSession", source: str, options: Any, speed: float) -> "Player":
    from aviot.streaming.sources.base import Player
    from aviot.streaming.sources.opening import open_source

    return Player(session, open_source(source, options, fps=session.fps), speed)


def _fail(error: Exception) -> NoReturn:
    """End with a stream's error; that of the encoder is a sentence, and the rest what it was."""
    from aviot.streaming.session import StreamError

    if isinstance(error, StreamError):
        refuse(str(error), code=1)
    raise error


def _answer_by_schedule(
    session: "StreamingSession", player: "Player", plan: WatchPlan, how: "AskOptions", journal: "Journal | None"
) -> None:
    """Write every answer as one JSON line."""
    from aviot.streaming.schedule import ask_every

    for row in ask_every(session, plan.questions, plan.every, player.ended, how):
        if journal is None:
            print(json_text(row), flush=True)
        else:
            journal.add(row)


def _summary(session: "StreamingSession") -> str:
    status = session.status()
    parts = [f"{clock(status.time)} watched", f"{status.seen:,} frames seen", f"{status.encoded:,} encoded"]
    counts = {name: getattr(status, name) for name in ("skipped", "dropped", "late", "damaged")}
    return ", ".join([*parts, *(f"{count:,} {name}" for name, count in counts.items() if count)])


def seconds_of(flag: str, text: str) -> float:
    """Return the seconds of a time such as 10s, 2m, 1.5h or 30."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"{flag} must be a time such as 10s, 2m or 1h, got {text!r}")
    return float(found[1]) * UNITS[found[2]]


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmg]?)i?b?", text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"--memory must be a size such as 500MB or 2GB, got {text!r}")
    return int(float(found[1]) * {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[found[2]])


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", text.strip().lower())
    if found is None:
        raise ValueError(f"--raw must be WIDTHxHEIGHT in pixels, such as 640x480, got {text!r}")
    return int(found[1]), int(found[2])
