"""Training-free AVIOT as a method."""

from collections.abc import Hashable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.budget import Budget
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.numerics import full_precision
from aviot.methods.base import Compressed, TokenMethod
from aviot.methods.features import TokenMixture, VideoFeatures
from aviot.methods.free.geometry import geometry
from aviot.methods.free.parameters import DEFAULTS, FreeParameters
from aviot.methods.free.selection import largest, log_gains


class AviotFree(TokenMethod):
    """Training-free AVIOT: tokens that would be transported far, in proportion to their relevance to the question.

    Each token carries a mass a_i by its cosine with the question's mean input embedding. Without kept tokens, all of a
    frame is transported to its mean. Keeping token i saves its own transport, a_i times a distance: to the frame's mean
    (s_i), and to the nearest of mean and tokens that come before it (delta_i), which is small where another token
    covers it. The gain is a_i s_i^(1-eta) delta_i^eta. The budget goes to the largest gains of the whole video, after
    one token per frame; so it is shared out in time by relevance and by transport cost, and in space too. Tokens stay
    unchanged and keep their times.
    """

    name = "aviot-free"
    title = "AVIOT, training-free"
    uses_question = True

    def __init__(self, parameters: FreeParameters = DEFAULTS) -> None:
        self.parameters = parameters

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """Add the parameters."""
        return *super().replay_key, self.parameters

    def compress(self, video: VideoFeatures, *, question: Float[Tensor, "d"] | None, budget: Budget) -> Compressed:
        """Keep exactly as many tokens as the budget allows.

        Raises ValueError for features that are not finite; on a GPU when the host first reads a position or the
        mixture, so that the compression itself never waits for the device.
        """
        check_width(video, question)
        count, device = video.limit(budget), video.features.device
        finite = FiniteCheck()
        if count >= video.frames * video.patches:
            finite.require(video.features, "the video's tokens are")
            return _guarded(Compressed.kept(video, torch.arange(count, device=device)), finite)
        with full_precision(device):
            measured = geometry(video.features, question)
            finite.require(measured.to_nearest, "the video's tokens are")
            gains = log_gains(measured, self.parameters)
            finite.require(gains, "the question's embedding is")
            index = largest(gains, count)
        return _guarded(Compressed.kept(video, index), finite)


def check_width(video: VideoFeatures, question: Tensor | None) -> None:
    """Raise ValueError for a question of another width than the tokens'."""
    width = video.features.shape[-1]
    if question is not None and question.shape != (width,):
        raise ValueError(
            f"method 'aviot-free' compares the question [{width}] with the video's tokens, got "
            f"{tuple(question.shape)}; give the mean input embedding of the decoder that reads them"
        )


def _guarded(made: Compressed, finite: FiniteCheck) -> Compressed:
    """Return a result whose positions and mixture raise for checks that have not been read."""

    def positions() -> Tensor:
        finite.raise_pending()
        return made.positions

    def mixture() -> TokenMixture:
        finite.raise_pending()
        return made.mixture

    return replace(made, _positions=positions, _mixture=mixture)
