"""Examples that could not be loaded: counted, logged, and too many of them an end."""

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from aviot.data.config import DataConfig
from aviot.data.errors import DataError

logger = logging.getLogger(__name__)

NAMED = 5
"""Failures that a message lists."""


@dataclass(frozen=True)
class Failure:
    """A record that was passed over, and why."""

    id: str
    where: str
    video: str
    reason: str

    def __str__(self) -> str:
        return f"{self.video} ({self.where}): {self.reason}"


def listing(failures: Iterable[Failure]) -> str:
    """Failures for the end of a message, one a line, at most `NAMED`."""
    return "".join(f"\n  {failure}" for failure in list(failures)[-NAMED:])


class FailureTally:
    """Counts what the batches of a run report, in the process that trains, so workers share nothing.

    Failures travel with the example that took their place; a batch is counted when it is used. Ranks count their own:
    add up `tried` and `failed` over them for a report.
    """

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._latest: deque[Failure] = deque(maxlen=NAMED)
        self.tried = 0
        self.failed = 0

    def observe(self, loaded: int, failures: Iterable[Failure]) -> None:
        """Count a batch of `loaded` examples and the failures on the way to them; DataError when they are too many."""
        self.tried += loaded
        for failure in failures:
            self.tried += 1
            self.failed += 1
            self._latest.append(failure)
            logger.warning("passed over %s", failure)
        share = self._config.max_failed_share
        if self.failed >= self._config.min_failures and self.failed > share * self.tried:
            raise DataError(
                f"{self.failed} of {self.tried} examples could not be loaded, more than the {share:.1%} that "
                "max_failed_share allows; is video_root right, and are all videos there? The latest:"
                + listing(self._latest)
            )
