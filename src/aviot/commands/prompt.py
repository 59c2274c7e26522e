"""A prompt for questions while a stream runs, under a line that shows what becomes of the stream."""

import sys
import threading
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from aviot.commands.terminal import say
from aviot.utils.printing import one_line, printable

if TYPE_CHECKING:
    from aviot.session import AskOptions
    from aviot.streaming.session import StreamingSession
    from aviot.streaming.sources.base import Player
    from aviot.streaming.status import StreamStatus

REFRESH_SECONDS = 0.5
PROMPT = "> "
LEAVE = ("exit", "quit")
# Escape codes: save the cursor, go to the start of the line above, clear that line, and come back.
SAVE, ABOVE, CLEAR, RESTORE = "\x1b7", "\x1b[1F", "\x1b[2K", "\x1b8"


class StatusPrompt:
    """A loop that reads questions from the terminal and prints their answers, until Ctrl-D or Ctrl-C."""

    def __init__(self, session: "StreamingSession", player: "Player", how: "AskOptions") -> None:
        self.session, self.player, self.how = session, player, how
        self._reading = threading.Event()
        self._over = threading.Event()

    def run(self) -> None:
        """Answer questions until the input ends."""
        say("Type a question and press Enter; Ctrl-D ends.")
        refresher = threading.Thread(target=self._refresh, daemon=True)
        refresher.start()
        try:
            while (question := self._read()) is not None:
                if question:
                    self._answer(question)
        finally:
            self._over.set()
            refresher.join()

    def _read(self) -> str | None:
        """Return what was typed under the status line; None at the end."""
        sys.stderr.write(self._line() + "\n" + PROMPT)
        sys.stderr.flush()
        self._reading.set()
        try:
            text = sys.stdin.readline()
        finally:
            self._reading.clear()
        question = text.strip()
        return None if not text or question.lower() in LEAVE else question

    def _answer(self, question: str) -> None:
        from aviot.streaming.session import StreamAnswer

        try:
            answer = self.session.ask(question, **self.how)
        except ValueError as error:
            say(str(error))
            return
        assert isinstance(answer, StreamAnswer)  # not streamed
        print(printable(answer.text), flush=True)
        say(f"{answer.tokens_after:,} of {answer.tokens_before:,} tokens, {answer.seconds:.1f} s")

    def _refresh(self) -> None:
        """Write the status line anew while the prompt waits."""
        while not self._over.wait(REFRESH_SECONDS):
            if self._reading.is_set():
                console = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # the other one would show the codes
                console.write(SAVE + ABOVE + CLEAR + self._line() + RESTORE)
                console.flush()

    def _line(self) -> str:
        ended = self.player.ended.is_set()
        failed = f"  {one_line(str(self.player.error))}" if self.player.error is not None else ""
        whole = one_line(status_line(self.session.status()) + ("  ended" if ended else "") + failed)
        return whole[: get_terminal_size().columns - 1]  # a line that wraps would take two


def status_line(status: "StreamStatus") -> str:
    """Return time, memory, and the frames seen and dropped in one short line."""
    parts = [clock(status.time)]
    if status.capacity:
        parts.append(f"memory {status.supports}/{status.capacity} ({status.memory_bytes / 1e6:,.0f} MB)")
    parts.append(f"{status.seen:,} seen")
    parts.append(f"{status.dropped:,} dropped")
    if status.damaged:
        parts.append(f"{status.damaged:,} damaged")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """Return a time of the stream as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
