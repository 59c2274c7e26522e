"""Refusals of requests: a status, and a sentence that says what to do."""

from collections.abc import Mapping
from http import HTTPStatus


class Refused(Exception):
    """Raised for a request that gets no answer, with its HTTP status and a sentence for the client.

    `code` is a short name for programs, `field` the field of the request that is to blame. `retry` is the number of
    seconds after which the same request may succeed.
    """

    def __init__(
        self, status: HTTPStatus, sentence: str, *, code: str | None = None, field: str | None = None, retry: int = 0
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.code, self.field, self.retry = status, sentence, code, field, retry

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the refusal."""
        return {"Retry-After": str(self.retry)} if self.retry else {}


class Disconnected(Exception):
    """Raised when the client has left, so that there is nobody to answer."""
