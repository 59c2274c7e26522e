"""Explanations of answers: which frames and patches each was made from, while its video is kept."""

import base64
import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aviot.explain.outputs import build_report
from aviot.explain.page import POLICY, embedded, page_of, readable
from aviot.explain.study import Asking, Setting
from aviot.request import MOST_QUESTIONS, check_compresses
from aviot.serve.answering import Answerer
from aviot.serve.cache import ByteCache
from aviot.serve.events import AskedAbout
from aviot.serve.opened import Opened
from aviot.serve.videos import Abandoned, Worker
from aviot.web.refusal import Refused

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page and its content security policy."""

    html: str
    policy: str


class Explanations:
    """The questions of the latest answers, by the numbers of their replies; explanations are made when asked for."""

    def __init__(self, answerer: Answerer, most: int) -> None:
        self._answerer, self._most = answerer, most
        self._asked: OrderedDict[str, AskedAbout] = OrderedDict()
        self._worker = Worker("explain")
        self._kept: ByteCache[bytes] = ByteCache(answerer.settings.report_bytes, len)

    def add(self, number: str, asked: AskedAbout) -> None:
        """Remember an answer about a video; the oldest is forgotten."""
        if asked.video is None:  # of a stream nothing is kept that could be shown
            return
        self._asked[number] = asked
        while len(self._asked) > self._most:
            self._asked.popitem(last=False)

    async def report(self, number: str, others: Sequence[str] = (), name: str = "") -> bytes:
        """Return the page's data for an answer as JSON, compared with other answers about the same video.

        `name` is shown instead of the video's own. One of the queue's places is taken while the data are made.
        """
        chosen = [self._found(each) for each in dict.fromkeys((number, *others))]
        key = (number, *others, name)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        opened = self._answerer.videos.kept.get(chosen[0].video)
        if opened is None:
            raise Refused(
                HTTPStatus.GONE, "the answer's video is not kept any more; ask about it again", code="not_kept"
            )
        left = threading.Event()
        with self._answerer.admitted():
            try:
                made = await self._worker(_made, opened, chosen, name, left.is_set)
            finally:
                left.set()
        self._kept.put(key, made)
        return made

    async def page(self, number: str, others: Sequence[str] = (), name: str = "") -> Page:
        """Return the page of an answer, which needs nothing else."""
        report = json.loads(await self.report(number, others, name))
        return await self._answerer.helpers(_page, report)

    def close(self) -> None:
        """Begin no more explanations."""
        self._worker.close()

    def _found(self, number: str) -> AskedAbout:
        asked = self._asked.get(number)
        if asked is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such answer here, or it was too long ago", code="not_kept")
        return asked


def _made(opened: Opened, chosen: Sequence[AskedAbout], name: str, left: Callable[[], bool]) -> bytes:
    """Return the page's data for one answer, and for others in comparison with it."""

    def check_wanted(step: str) -> None:
        if left():
            raise Abandoned(step)

    check_wanted("begin")
    try:
        session = opened.session.lm.resume(opened.session.encoded, check_wanted)
        _, report = build_report(session, opened.pictures, _asking(chosen))
    except ValueError as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="not_explainable") from error
    return embedded(report | ({"name": readable(name)} if name else {})).encode()


def _asking(chosen: Sequence[AskedAbout]) -> Asking:
    """Return the first answer's question and settings, beside the others' questions and, where they differ, settings.

    Each question is asked after the turns that came before it.
    """
    first, also = chosen[0], dict[Setting, None]()
    check_compresses(first.method)
    for other in chosen[1:]:
        if other.video != first.video:
            raise ValueError("the answers are about different videos; compare answers about one video")
        check_compresses(other.method)
        if (other.method, other.budget) != (first.method, first.budget):
            also[Setting(other.method, other.budget)] = None
    questions = tuple(dict.fromkeys(asked.question for asked in chosen))[:MOST_QUESTIONS]
    histories = {asked.question.strip(): asked.history for asked in reversed(chosen)}
    return Asking(questions, first.budget, first.method, first.max_new_tokens, tuple(also), histories)


def _page(report: dict[str, Any]) -> Page:
    html = page_of(report)
    digests = (hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(html))
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return Page(html, POLICY.format(script=allowed))
