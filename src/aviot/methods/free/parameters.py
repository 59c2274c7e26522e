"""The constants of training-free AVIOT."""

from dataclasses import dataclass

from aviot.utils.values import require_finite, require_fraction, require_positive


@dataclass(frozen=True, kw_only=True)
class FreeParameters:
    """The constants of training-free AVIOT; the defaults were chosen on validation questions (docs/log.md).

    `relevance` is kappa, the weight of the question in a token's mass; `evidence` is the standard deviation of the
    cosines at which half of that weight counts; `coverage` is eta, the weight of the distance to the tokens before.
    """

    relevance: float = 0.25
    evidence: float = 0.02
    coverage: float = 0.5

    def __post_init__(self) -> None:
        require_finite(self, "relevance")
        require_positive(self, "evidence")
        require_fraction(self, "coverage")


DEFAULTS = FreeParameters()
