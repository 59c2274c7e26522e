"""Questions asked of a stream again and again, and their answers as plain rows."""

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from aviot.session import AskOptions
from aviot.streaming.session import StreamAnswer, StreamingSession

POLL_SECONDS = 0.05
LEAST_SHARE = 1e-3  # of an answer's tokens, from which on a row names a support's frames


def row_of(answer: StreamAnswer) -> dict[str, Any]:
    """Return an answer as plain data: the stream's time, and the times of the frames behind its tokens.

    `sources` has one entry per support of the memory with a share of the tokens: first and last frame's number and time
    and that share.
    """
    sources = [
        {"frames": [int(own.numbers[0]), int(own.numbers[-1])], "seconds": list(own.span), "share": round(share, 4)}
        for own, share in zip(answer.records, answer.sources.support_shares().tolist(), strict=True)
        if share >= LEAST_SHARE
    ]
    plain = answer.as_dict()
    return {"time": answer.status.time, "question": plain.pop("question"), **plain, "sources": sources}


def ask_every(
    session: StreamingSession, questions: Sequence[str], seconds: float, ended: threading.Event, how: AskOptions
) -> Iterator[dict[str, Any]]:
    """Ask all questions every so many seconds of the stream's own time, and once more at its end; yield the answers.

    A turn that comes while the questions before it are still being answered is left out. With infinite seconds, they
    are asked at the end alone.
    """
    due, asked_at = seconds, -math.inf
    while True:
        over = ended.is_set()
        status = session.status()
        if status.supports and (status.time >= due or over) and status.time > asked_at:
            asked_at = status.time
            for question in questions:
                yield row_of(session.ask(question, **how))
            if math.isfinite(seconds):
                due = (asked_at // seconds + 1) * seconds
        if over:
            return
        ended.wait(POLL_SECONDS)
