"""Chosen frames of a file, decoded from the keyframes before them."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import av
import numpy as np

from aviot.video.container import Film
from aviot.video.packets import PacketIndex

MIN_SKIP = 16
"""Packets that are rather decoded than skipped: emptying and refilling the decoder costs about as much."""

MIN_SEEK = 64
"""Packets that are rather read past than sought over."""


SILENT = frozenset({"hevc"})
"""Decoders that drop a picture that they cannot decode without an error. Each packet of theirs is a picture; those of
other codecs may be half of one or repeat the last, and are not missed."""


class SeekError(Exception):
    """After seeking, the packets are not those that were indexed."""


@dataclass
class Run:
    """Packets `start` to `end`, decoded in one go, and the frames wanted of them: timestamp to place."""

    start: int
    end: int
    wanted: dict[int, int]


def plan(index: PacketIndex, chosen: tuple[int, ...]) -> list[Run]:
    """Runs that decode the chosen frames, with a new one wherever jumping ahead to a keyframe pays."""
    runs: list[Run] = []
    for place, frame in enumerate(chosen):
        number = int(index.frames[frame])
        start = index.start(number)
        if not runs or not runs[-1].start <= start <= runs[-1].end + MIN_SKIP:
            runs.append(Run(start, number, {}))
        runs[-1].end = max(runs[-1].end, number)
        runs[-1].wanted[int(index.pts[number])] = place
    return runs


class Seeker:
    """Decodes chosen frames and little else, jumping over stretches that none of them needs."""

    def __init__(self, film: Film, index: PacketIndex) -> None:
        self._film = film
        self._index = index
        self._packets: Iterator[av.Packet] = iter(())
        self._next = len(index.pts)  # number of the packet to be read next; indexing has read them all
        self._seekable = True
        self.lost: set[int] = set()

    def frames(self, chosen: tuple[int, ...]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Each chosen frame that can be decoded, with its place; `lost` collects packets that turn out not to."""
        runs = plan(self._index, chosen)
        self._film.expect(sum(run.end - run.start + 1 for run in runs))
        for run in runs:
            missing = dict(run.wanted)
            errors = set(self._film.unclean)
            yield from self._play(run, missing)
            if missing:
                self._film.damaged = True
                self._film.unclean = errors  # counted again, without threads that would blame later packets
                self._rewind()
                # Where pictures are refreshed bit by bit, a keyframe alone does not do; the one before it does.
                yield from self._play(Run(self._index.before(run.start), run.end, run.wanted), missing, last=True)

    def _play(self, run: Run, missing: dict[int, int], last: bool = False) -> Iterator[tuple[int, av.VideoFrame]]:
        seen = array("q")
        trusted_from = int(self._index.pts[max(run.start, self._index.first_key)])
        self._film.begin(trusted_from, headless=run.start < self._index.first_key)
        for frame in self._decode(run, thorough=last):
            if frame.pts is None:
                raise SeekError
            seen.append(frame.pts)
            if frame.pts in missing:
                yield missing.pop(frame.pts), frame
                if not missing:
                    break
        self._film.flush()
        if last and missing:
            self._give_up(run, seen, missing)

    def _give_up(self, run: Run, seen: array, missing: dict[int, int]) -> None:
        """What did not come is lost, wanted or not; only frames shown before the run's start had no chance to come."""
        numbers = self._index.frames
        numbers = numbers[(numbers >= run.start) & (numbers <= run.end)]
        pts = self._index.pts[numbers]
        had_chance = (pts >= self._index.pts[run.start]) | np.isin(pts, list(missing))
        gone = had_chance & ~np.isin(pts, np.frombuffer(seen, np.int64))
        self.lost.update(numbers[gone].tolist())
        if self._film.stream.codec_context.name in SILENT:
            for time in pts[gone].tolist():
                self._film.note_error(time)

    def _decode(self, run: Run, thorough: bool) -> Iterator[av.VideoFrame]:
        yield from self._film.decode(self._go_to(run.start))
        for number in range(run.start + 1, run.end + 1):
            packet = next(self._packets, None)
            if packet is None or self._index.number(packet) != number:
                raise SeekError
            self._next = number + 1
            yield from self._film.decode(packet, needed=thorough or packet.pts in run.wanted)
        yield from self._film.decode(None)

    def _go_to(self, number: int) -> av.Packet:
        """The packet of this number, with the file standing behind it."""
        ahead = number - self._next
        packet = None
        if ahead < 0 or (ahead > MIN_SEEK and self._seekable):
            for key in (number, self._index.before(number)):
                packet = packet or self._seek(key, number)
            if packet is None:
                self._rewind()
        packet = packet or self._find(number)
        if packet is None:
            raise SeekError
        self._next = number + 1
        return packet

    def _rewind(self) -> None:
        self._film.rewind()
        self._packets, self._next = self._film.packets(), 0

    def _seek(self, key: int, number: int) -> av.Packet | None:
        """Let the container seek to packet `key`, and believe only the packets that then come."""
        if not self._seekable:
            return None
        try:
            self._film.container.seek(int(self._index.pts[key]), stream=self._film.stream)
        except av.FFmpegError:
            self._seekable = False
            return None
        self._packets = self._film.packets()
        return self._find(number)

    def _find(self, number: int) -> av.Packet | None:
        """Read on to the packet of this number; None if the file stands behind it already."""
        for packet in self._packets:
            found = self._index.number(packet)
            if found == number:
                return packet
            if found is not None and found > number:
                return None
            if found is not None and found < self._next <= number:
                self._seekable = False  # it went back to go ahead: reading on is faster
        return None
