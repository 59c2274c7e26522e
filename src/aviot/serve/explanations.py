"""Pages that show which frames and patches an answer was made from, while its video is kept."""

import base64
import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus

from aviot.explain.outputs import build_report
from aviot.explain.page import POLICY, page_of
from aviot.explain.study import Asking
from aviot.request import check_compresses
from aviot.serve.answering import Answerer
from aviot.serve.events import AskedAbout
from aviot.serve.opened import Opened
from aviot.serve.videos import Worker
from aviot.web.refusal import Refused

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page and its content security policy."""

    html: str
    policy: str


class Explanations:
    """The questions of the latest answers, by the numbers of their replies; pages are made when they are opened."""

    def __init__(self, answerer: Answerer, most: int) -> None:
        self._answerer, self._most = answerer, most
        self._asked: OrderedDict[str, AskedAbout] = OrderedDict()
        self._worker = Worker("explain")

    def add(self, number: str, asked: AskedAbout) -> None:
        """Remember an answer about a video; the oldest is forgotten."""
        if asked.video is None:  # of a stream nothing is kept that could be shown
            return
        self._asked[number] = asked
        while len(self._asked) > self._most:
            self._asked.popitem(last=False)

    async def page(self, number: str) -> Page:
        """Return the page of an answer; it takes one of the queue's places while it is made."""
        asked = self._asked.get(number)
        opened = None if asked is None else self._answerer.videos.kept.get(asked.video)
        if asked is None or opened is None:
            raise Refused(
                HTTPStatus.NOT_FOUND if asked is None else HTTPStatus.GONE,
                "there is no such answer here, or it was too long ago"
                if asked is None
                else "the answer's video is not kept any more; ask about it again",
                code="not_kept",
            )
        with self._answerer.admitted():
            return await self._worker(_made, opened, asked)

    def close(self) -> None:
        """Begin no more pages."""
        self._worker.close()


def _made(opened: Opened, asked: AskedAbout) -> Page:
    try:
        check_compresses(asked.method)
        asking = Asking((asked.question,), asked.budget, asked.method, asked.max_new_tokens)
        _, report = build_report(opened.session, opened.pictures, asking)
    except ValueError as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="not_explainable") from error
    html = page_of(report)
    digests = (hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(html))
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return Page(html, POLICY.format(script=allowed))
