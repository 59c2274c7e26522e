"""A session with a video that has no end: frames are pushed as they arrive, and questions asked at any moment."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

import numpy as np
import torch

from aviot import methods
from aviot.budget import AutoBudget, as_budget
from aviot.engine.base import Stopwatch
from aviot.methods.base import Method
from aviot.session import Answer, AnyBudget, AskOptions, VideoLM, VideoSession
from aviot.streaming import saving
from aviot.streaming.arguments import check_method, checked_frames, checked_limits
from aviot.streaming.asking import merged_for_question
from aviot.streaming.bank import MIN_SUPPORTS, RECENT_SHARE, BankView, SupportBank
from aviot.streaming.encoding import BATCH, FrameEncoder
from aviot.streaming.intake import FrameQueue, FrameSampler, QueuedFrame, StreamClock
from aviot.streaming.provenance import StreamProvenance
from aviot.streaming.records import FrameRange
from aviot.streaming.status import StreamStatus
from aviot.video import Frames, Picture, VideoError
from aviot.video.frames import is_tensor
from aviot.video.sampling import check_rate


class StreamError(RuntimeError):
    """Raised by `push` after encoding has failed; its cause is the encoder's error."""


@dataclass(frozen=True, eq=False)
class StreamAnswer(Answer):
    """An answer about a stream at one moment: `frames` is the number of supports in the memory, `tokens_before` theirs.

    `provenance` is the mixture behind each token of the supports that the method was given, which may have merged for
    the question, `sources` that of the original frames.
    """

    status: StreamStatus = field(default_factory=StreamStatus)
    records: tuple[FrameRange, ...] = ()  # the frames behind each support that the method was given

    @property
    def sources(self) -> StreamProvenance:
        """The original frames behind each token that the method made."""
        return StreamProvenance(self.provenance, self.records)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer and the stream's counts as plain data."""
        return super().as_dict() | {"status": self.status.as_dict()}


class StreamingSession:
    """A memory of constant size for a stream of frames, on a model of any family.

    `memory_tokens` is the number of decoder tokens that all of the memory takes, `memory_bytes` its bytes; by default
    it holds as many supports as the checkpoint samples frames from a file. `most_bytes` lowers any of these sizes, for
    programs that hold the streams of others. `recent_frames` of them are the latest frames, unchanged (default: a
    quarter). `fps` is the sampling rate (default: the checkpoint's).

    `push` only queues frames. A thread of its own encodes them in small batches and puts them into the memory; when it
    cannot keep up, frames are dropped evenly and counted. `push`, `ask`, `status` and `save` may be called from any
    threads. End a session with `close` or a `with` block.
    """

    def __init__(
        self,
        lm: VideoLM,
        *,
        memory_tokens: int | None = None,
        memory_bytes: int | None = None,
        most_bytes: int | None = None,
        recent_frames: int | None = None,
        fps: float | None = None,
    ) -> None:
        self.lm = lm
        self._limits = checked_limits(
            memory_tokens=memory_tokens, memory_bytes=memory_bytes, most_bytes=most_bytes, recent_frames=recent_frames
        )
        self._encoder = FrameEncoder(lm)
        self.fps = self._encoder.defaults.fps if fps is None else check_rate("fps", fps)
        self._clock, self._sampler, self._queue = StreamClock(), FrameSampler(self.fps), FrameQueue()
        self._bank: SupportBank | None = None
        self._pushing, self._reading = threading.Lock(), threading.Lock()
        self._seen = self._skipped = self._late = self._damaged = self._encoded = 0
        self._before = StreamStatus()  # counts of the runs before this one
        self._now = 0.0  # time of the latest encoded frame
        self._started: float | None = None
        self._failure: BaseException | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    @classmethod
    def load(cls, lm: VideoLM, path: str | Path, *, fps: float | None = None) -> Self:
        """Return a session that goes on from where `save` left it, with the same memory.

        Raises ValueError for a file that is damaged or of another model.
        """
        found = saving.read(Path(path), lm.backbone)
        session = cls(lm, fps=found.fps if fps is None else fps)
        session._limits = found.limits
        session._encoder.resume(found.shape, found.frame_size)
        session._bank = found.bank(lm.backbone.device)
        session._clock = StreamClock(*found.clock)
        session._encoded, session._now, session._before = found.status.encoded, found.status.time, found.status
        session._seen = found.status.seen
        return session

    def save(self, path: str | Path) -> None:
        """Write memory, counts and clock as one safetensors file, atomically; frames that still wait are not in it."""
        with self._reading:
            bank = self._require_bank()
            view, status = bank.view(), self.status()
            assert self._encoder.shape is not None  # it has encoded what is in the bank
            assert self._encoder.frame_size is not None
            with self._pushing:
                clock = (self._clock.last or 0.0, self._clock.offset, self._clock.step)
            saved = saving.SavedStream(
                view=view,
                capacity=bank.capacity,
                recent=bank.recent,
                merges=bank.merges,
                shape=self._encoder.shape,
                frame_size=self._encoder.frame_size,
                clock=clock,
                fps=self.fps,
                limits=self._limits,
                status=status,
            )
        saving.write(Path(path), saved, self.lm.backbone)

    def push(self, frames: Frames, times: float | Sequence[float] | None = None) -> int:
        """Queue a frame [H,W,3] or several [T,H,W,3], uint8 RGB, with their times in seconds; never wait.

        Times count from any origin; those that go back are continued (`StreamStatus.clock_resets`). Without times, a
        frame's is that of its arrival. Return how many were queued: others are skipped, for the sampling rate, or
        dropped. Raises StreamError if an earlier frame could not be encoded.
        """
        pictures, at = checked_frames(frames, times)
        queued = 0
        with self._pushing:
            self._begin()
            arrived = self._arrival()
            for place, picture in enumerate(pictures):
                ticket = self._admitted(arrived if at is None else at[place])
                if ticket is not None:
                    own = picture.detach().cpu().numpy() if is_tensor(picture) else picture
                    self._queue.put(QueuedFrame(np.array(own), *ticket))  # a producer may use its buffer again
                    queued += 1
        return queued

    def offer(self, make: Callable[[], Picture], time: float | None = None) -> bool:
        """Queue one frame like `push`, but call for it, as uint8 RGB [H,W,3], only if it is not skipped or dropped.

        A frame that cannot be made (VideoError) counts as damaged. Return whether it was queued.
        """
        with self._pushing:
            self._begin()
            ticket = self._admitted(self._arrival() if time is None else time)
        if ticket is None:
            return False
        try:
            (picture,), _ = checked_frames(make(), 0.0)
        except VideoError:
            self.note_damaged()
            return False
        self._queue.put(QueuedFrame(picture, *ticket))
        return True

    def _admitted(self, time: float) -> tuple[int, float] | None:
        """Count a frame, and return its number and time; None if it is late, skipped or dropped."""
        number = self._seen
        self._seen += 1
        now = self._clock.at(time)
        if now is None:
            self._late += 1
            return None
        if not self._sampler.takes(now):
            self._skipped += 1
            return None
        return (number, now) if self._queue.admits() else None

    def _arrival(self) -> float:
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        return now - self._started

    def note_damaged(self, count: int = 1) -> None:
        """Count frames that a source could not decode."""
        with self._pushing:
            self._damaged += count

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all frames pushed so far are in the memory; return False if that takes longer than `timeout`.

        An encoder that merges pairs may leave one frame waiting for the next.
        """
        return self._queue.wait(self._encoder.merged, timeout)

    def finish(self) -> None:
        """End the stream: wait until its last frames are in the memory, which can still be asked."""
        with self._pushing:
            self._ended = True
        self._queue.close()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """End the stream without waiting for frames that are not being encoded yet."""
        with self._pushing:
            self._ended = True
        self._queue.discard()
        self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def status(self) -> StreamStatus:
        """Return the counts of this moment, including those of runs before a resumption."""
        bank, shape, before = self._bank, self._encoder.shape, self._before
        held = 0 if bank is None else len(bank)
        return StreamStatus(
            time=self._now,
            seen=self._seen,
            skipped=before.skipped + self._skipped,
            dropped=before.dropped + before.waiting + self._queue.dropped,
            late=before.late + self._late,
            encoded=self._encoded,
            waiting=self._queue.pending,
            damaged=before.damaged + self._damaged,
            clock_resets=before.clock_resets + self._clock.resets,
            supports=held,
            capacity=0 if bank is None else bank.capacity,
            tokens=0 if shape is None else held * shape.tokens_per_frame,
            memory_bytes=0 if bank is None else bank.nbytes,
            ended=self._ended,
        )

    @overload
    def ask(self, question: str, *, stream: Literal[False] = False, **how: Unpack[AskOptions]) -> StreamAnswer: ...

    @overload
    def ask(self, question: str, *, stream: Literal[True], **how: Unpack[AskOptions]) -> Iterator[str]: ...

    def ask(self, question: str, *, stream: bool = False, **how: Unpack[AskOptions]) -> StreamAnswer | Iterator[str]:
        """Answer a question from the memory as it is now; arguments are those of `VideoSession.ask`.

        The budget counts the memory's supports: `Budget(tokens=2048)` is a limit on what the decoder reads however
        long the stream is. Methods that read the encoder's attention are refused, since frames are not kept.
        """
        method = how.get("method", methods.registry.DEFAULT)
        check_method(methods.get(method))
        session, records, status = self.snapshot(question, how.get("budget"), method)
        if stream:
            return session.ask(question, stream=True, **how)
        found = session.ask(question, **how)
        own = {each.name: getattr(found, each.name) for each in fields(found)}
        whole = {"frames": status.supports, "tokens_before": status.tokens}
        return StreamAnswer(**own | whole, status=status, records=records)

    def snapshot(
        self,
        question: str | None = None,
        budget: AnyBudget | None = None,
        method: str | Method = methods.registry.DEFAULT,
    ) -> tuple[VideoSession, tuple[FrameRange, ...], StreamStatus]:
        """Return a session with the memory as it is now, the frames behind each support, and the counts.

        To the session, supports are the frames of a video; frames that arrive later do not change it. For a question
        that a method on whole frames hears, supports that matter little to it have merged where the budget is below
        half of the memory (`aviot.streaming.asking`); with an automatic budget, which may need all, none have.
        """
        with self._reading:
            view, status = self._require_bank().view(), self.status()
        session = self._session_of(view, status)
        if question is not None and (supports := self._hearing(session, budget, method)):
            merged = merged_for_question(view, session.relevance(question), supports)
            if merged is not view:
                view, session = merged, self._session_of(merged, status)
        return session, view.records, status

    def _session_of(self, view: BankView, status: StreamStatus) -> VideoSession:
        encoded = self._encoder.as_video(view, status.time)
        return VideoSession(self.lm, encoded, Stopwatch(self.lm.backbone.device))

    def _hearing(self, session: VideoSession, budget: AnyBudget | None, method: str | Method) -> int | None:
        """Return the budget's supports if the method mixes whole frames for the question, else None."""
        found = self.lm.backbone.method(method)
        chosen = as_budget(self.lm.backbone.default_budget if budget is None else budget)
        if found.point != "features" or not found.uses_question or isinstance(chosen, AutoBudget):
            return None
        encoded = session.encoded
        return chosen.frames(len(encoded.times), encoded.tokens_per_frame)

    def view(self) -> BankView:
        """Return a copy of the memory: features, and the frames behind each support."""
        with self._reading:
            return self._require_bank().view()

    def _require_bank(self) -> SupportBank:
        if self._bank is None:
            failed = "" if self._failure is None else f" ({self._failure})"
            raise ValueError(f"no frame has been encoded yet{failed}; push frames, and wait() for them")
        return self._bank

    def check(self) -> None:
        """Raise StreamError if a frame could not be encoded: `push` does too, but a stream may end before that."""
        if self._failure is not None:
            raise StreamError(
                f"encoding has failed ({self._failure}); the memory up to then can still be asked"
            ) from self._failure

    def _begin(self) -> None:
        """Start the encoding thread with the first frame; refuse frames after the end or a failure."""
        self.check()
        if self._ended:
            raise ValueError("the stream has ended; open a new session for another one")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="aviot-stream", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Encode what is queued until the stream ends."""
        at_once = max(BATCH - BATCH % self._encoder.merged, self._encoder.merged)
        while frames := self._queue.take(at_once, self._encoder.merged):
            try:
                self._remember(frames)
            except Exception as error:
                self._failure = error
                self._queue.close()
                self._queue.discard()
            self._queue.done(encoded=self._failure is None)

    def _remember(self, frames: Sequence[QueuedFrame]) -> None:
        tensors, records = self._encoder.encode(frames, self._encoded)
        with self._reading:
            if self._bank is None:
                self._bank = self._new_bank(tensors)
            self._bank.add(tensors, records)
            self._encoded += len(records)
            self._now = frames[-1].time

    def _new_bank(self, like: dict[str, torch.Tensor]) -> SupportBank:
        assert self._encoder.shape is not None  # frames have just been encoded
        limits, shape = self._limits, self._encoder.shape
        capacity = -(-self._encoder.defaults.max_frames // shape.merged)
        if limits["memory_tokens"] is not None:
            capacity = limits["memory_tokens"] // shape.tokens_per_frame
        if limits["memory_bytes"] is not None:
            capacity = limits["memory_bytes"] // SupportBank.bytes_per_support(like)
        if limits["most_bytes"] is not None:
            capacity = min(capacity, limits["most_bytes"] // SupportBank.bytes_per_support(like))
        if capacity < MIN_SUPPORTS:
            raise ValueError(
                f"the memory has room for {capacity} supports of {shape.tokens_per_frame:,} tokens and "
                f"{SupportBank.bytes_per_support(like):,} bytes each; give room for at least {MIN_SUPPORTS}"
            )
        recent = limits["recent_frames"]
        recent = max(1, capacity // RECENT_SHARE) if recent is None else min(recent, capacity - 2)
        return SupportBank(capacity, recent, like)
