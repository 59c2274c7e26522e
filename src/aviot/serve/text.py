"""The text of a streamed answer: trimmed, and cut at stop texts."""

from collections.abc import Sequence


class AnswerStream:
    """The text of an answer as it may be sent: without white space around it, and nothing from a stop text on.

    The joined results of `add` and `end` are the whole text, trimmed and cut. What may turn out to be the beginning of
    a stop text, or white space at the end, is held back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._begun = False
        self._held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """Take the next text; return what can be sent."""
        if self.stopped:
            return ""
        self._held += text
        cuts = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if cuts:
            self.stopped = True
            self._held = self._held[: min(cuts)]
            return self.end()
        safe = len(self._held) - self._uncertain()
        return self._send(safe)

    def end(self) -> str:
        """Return what is left."""
        self._held = self._held.rstrip()
        return self._send(len(self._held))

    def _uncertain(self) -> int:
        """Return the number of characters at the end that may belong to a stop text."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _send(self, count: int) -> str:
        ready = self._held[:count]
        if not self._begun:
            ready = ready.lstrip()
        kept = len(ready.rstrip())
        self._held = ready[kept:] + self._held[count:]
        self._begun = self._begun or kept > 0
        return ready[:kept]
