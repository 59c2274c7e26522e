"""Streams of clients: frames arrive in requests, each stream has a memory of constant size, and can always be asked."""

import asyncio
import math
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from typing import Any

import numpy as np

from aviot import methods
from aviot.budget import AutoBudget, Budget
from aviot.serve.metrics import Metrics
from aviot.serve.settings import Settings
from aviot.serve.stream_requests import MOST_FRAMES, Pushed, StreamRequest, check_count
from aviot.serve.videos import READERS, Worker
from aviot.session import VideoLM, VideoSession
from aviot.streaming.arguments import check_method
from aviot.streaming.records import NUMBER, FrameRange
from aviot.streaming.session import StreamError, StreamingSession
from aviot.streaming.status import StreamStatus
from aviot.video import Video, VideoError, read_isolated
from aviot.web.refusal import Refused

SCHEME = "stream:"
"""The beginning of the address of a stream in a question's `video_url`."""

WAIT_SECONDS = 60.0  # that a push may wait until its frames are in the memory


@dataclass(eq=False)
class HeldStream:
    """A stream that the server holds: its secret number, its session, and when it is given up."""

    number: str
    session: StreamingSession
    given_up: asyncio.TimerHandle
    end: float = 0.0  # time at which the latest piece of video ended
    pushing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def as_dict(self) -> dict[str, Any]:
        """Return what clients are told about the stream."""
        about = {"id": self.number, "object": "stream", "fps": self.session.fps, "url": f"{SCHEME}{self.number}"}
        return about | {"status": self.session.status().as_dict()}


def stream_number(url: str) -> str | None:
    """Return the number of the stream that a video's address names; None if it names something else."""
    return url[len(SCHEME) :] if url[: len(SCHEME)].lower() == SCHEME else None


class Streams:
    """At most `settings.streams` streams; one that is neither fed nor asked for a while is given up."""

    def __init__(self, lm: VideoLM, settings: Settings, metrics: Metrics) -> None:
        self.lm, self.settings = lm, settings
        self._held: dict[str, HeldStream] = {}
        self._readers, self._waiters = Worker("stream-read", READERS), Worker("stream", max(1, settings.streams))
        metrics.gauge("streams", "Open streams.", lambda: len(self._held))
        metrics.gauge("stream_bytes", "Bytes of the streams' memories.", self._bytes)

    def __len__(self) -> int:
        return len(self._held)

    def open(self, asked: StreamRequest) -> HeldStream:
        """Open a stream; raise Refused if there is no room or a size is wrong."""
        most = self.settings.streams
        if not most:
            raise Refused(HTTPStatus.NOT_FOUND, "this server takes no streams; send a video", code="no_streams")
        if len(self._held) >= most:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{most} streams are open already, the most that this server takes; end one, or try again later",
                code="streams_full",
                retry=math.ceil(self.settings.stream_seconds),
            )
        try:
            session = StreamingSession(self.lm, most_bytes=self.settings.stream_bytes, **asked.model_dump())
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error), code="wrong_stream") from error
        number = token_hex(16)
        held = self._held[number] = HeldStream(number, session, self._timer(number))
        return held

    def find(self, number: str) -> HeldStream:
        """Return a stream, which is kept from now on; raise Refused if there is none of this number."""
        held = self._held.get(number)
        if held is None:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                "there is no such stream here: it has ended, or was neither fed nor asked for "
                f"{self.settings.stream_seconds:,.0f} s; open another one",
                code="no_such_stream",
            )
        held.given_up.cancel()
        held.given_up = self._timer(number)
        return held

    async def push(self, number: str, pushed: Pushed) -> dict[str, Any]:
        """Read frames in a process of their own and queue them; return how many were queued, and the counts."""
        held = self.find(number)
        async with held.pushing:  # in the order of the requests
            video = await self._readers(self._read, pushed, held.session.fps)
            times = _times(pushed, video, held.end)
            queued = await self._waiters(partial(_pushed, held.session, video, times))
            if times is not None:
                held.end = times[-1] + _piece_interval(pushed, video)
            if pushed.wait:
                await self._waiters(_waited, held.session)
        return {"queued": queued} | held.as_dict()

    async def end(self, number: str) -> dict[str, Any]:
        """End a stream and forget it; return its last counts."""
        held = self.find(number)
        self._forget(number)
        await self._waiters(held.session.close)
        return held.as_dict()

    def close(self) -> None:
        """End all streams."""
        for number in list(self._held):
            self._held[number].given_up.cancel()
            self._held.pop(number).session.close()
        self._readers.close()
        self._waiters.close()

    def _timer(self, number: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self.settings.stream_seconds, self._give_up, number)

    def _give_up(self, number: str) -> None:
        if self._held[number].pushing.locked():  # frames are still on their way
            self._held[number].given_up = self._timer(number)
            return
        held = self._forget(number)
        if held is not None:
            asyncio.get_running_loop().run_in_executor(None, held.session.close)

    def _forget(self, number: str) -> HeldStream | None:
        held = self._held.pop(number, None)
        if held is not None:
            held.given_up.cancel()
        return held

    def _bytes(self) -> int:
        return sum(held.session.status().memory_bytes for held in list(self._held.values()))

    def _read(self, pushed: Pushed, fps: float) -> Video:
        media = pushed.media
        rate = 1.0 if media.frames else fps
        with media.as_path() as path:
            try:
                video = read_isolated(path, fps=rate, max_frames=MOST_FRAMES, limits=self.settings.limits.read)
            except VideoError as error:
                sentence = str(error).replace(str(path), media.name)
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, code="frames_not_read") from error
        if not media.frames:
            check_count(
                round(video.duration * min(fps, video.fps)) - 1
            )  # the last one may be a frame of the next piece
        return video


def _times(pushed: Pushed, video: Video, end: float) -> list[float] | None:
    """Return the frames' times in the stream; None for those of arrival."""
    if not pushed.media.frames:
        start = end if pushed.start is None else pushed.start
        return [start + time for time in video.times]
    if pushed.times is not None:
        return list(pushed.times)
    return None if pushed.start is None else [pushed.start]


def _piece_interval(pushed: Pushed, video: Video) -> float:
    """Return the seconds from a request's last frame to where the next piece of video begins by default."""
    if pushed.media.frames:
        return 0.0
    return max(0.0, video.duration - video.times[-1])


def _pushed(session: StreamingSession, video: Video, times: list[float] | None) -> int:
    try:
        return session.push(np.asarray(video.frames), times)
    except StreamError as error:
        raise _failed(error) from error
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, str(error), code="wrong_frames") from error


def _waited(session: StreamingSession) -> None:
    """Wait until all frames are in the memory, for a limited time; raise Refused if they never will be."""
    session.wait(WAIT_SECONDS)
    try:
        session.check()
    except StreamError as error:
        raise _failed(error) from error


def _failed(error: StreamError) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}; open another stream", code="stream_failed")


@dataclass(frozen=True, eq=False)
class Moment:
    """A stream at the moment of a question: its counts, and the original frames behind each support."""

    number: str
    status: StreamStatus
    records: tuple[FrameRange, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the stream's counts."""
        return {"id": self.number, "status": self.status.as_dict()}

    def ranges(self) -> list[dict[str, Any]]:
        """Return, for each support, the first and last number of its frames among those pushed, their count, and times.

        All frames of a support have the same weight.
        """
        listed = []
        for record in self.records:
            first, last = (int(number) for number in record.knots[[0, -1], NUMBER])
            listed.append({"first": first, "last": last, "count": record.count, "seconds": list(record.span)})
        return listed


def moment_of(
    stream: HeldStream, question: str, budget: Budget | AutoBudget, method: str
) -> tuple[VideoSession, Moment]:
    """Return a session with a stream's memory for a question; raise Refused without one, or if the method cannot."""
    try:
        check_method(methods.get(method))
        session, records, status = stream.session.snapshot(question, budget, method)
    except ValueError as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="not_answerable") from error
    return session, Moment(stream.number, status, records)
