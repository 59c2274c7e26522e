"""How far the opening of a video has come, as the threads that work on it tell."""

import time
from dataclasses import dataclass, field

WAITING, DECODING, ENCODING = "wait", "decode", "encode"
LEAST_SHARE = 0.02  # of a stage before which its end is not foretold


@dataclass
class VideoProgress:
    """The stage of an opening video, the share of it that is done, and when it began."""

    stage: str = WAITING
    share: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def begin(self, stage: str) -> None:
        """Note that a stage begins."""
        self.stage, self.share, self.began = stage, 0.0, time.monotonic()

    def tell(self, share: float) -> None:
        """Note the share of the stage that is done; it never falls."""
        self.share = max(self.share, share)

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the stage ends if it goes on at this pace; None if it is too early to say."""
        if self.share < LEAST_SHARE:
            return None
        return (time.monotonic() - self.began) * (1 - self.share) / self.share
