"""How much work an example is, guessed before its video has been opened."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CHARACTERS_A_TOKEN = 4.0
"""Of English, roughly."""

UNKNOWN_SECONDS = 40.0
"""For videos whose record does not tell; about the mean length in LLaVA-Video-178K."""

TOKENS_A_FRAME = 21.0
"""What a frame costs whatever the ratio, in tokens of a 7B decoder that is trained: seven for its time in the prompt,
fourteen for its way through the frozen encoder (729 patches · 2 operations · 0.43 G weights over 6 · 7.6 G)."""


@dataclass(frozen=True)
class CostModel:
    """Tokens of the decoder that an example is worth.

    cost = tokens_per_support · ceil(T / ratio) + TOKENS_A_FRAME · T + characters / 4, with T the frames that sampling
    takes of the video. A wrong guess changes how long ranks wait for each other and nothing else.
    """

    fps: float
    max_frames: int
    tokens_per_support: int

    def estimate(
        self, characters: NDArray[np.int64], seconds: NDArray[np.float64], ratios: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The cost of each example."""
        known = np.where(np.isnan(seconds), UNKNOWN_SECONDS, seconds)
        frames = np.clip(np.ceil(known * self.fps), 1, self.max_frames)
        return (
            self.tokens_per_support * np.ceil(frames / ratios)
            + TOKENS_A_FRAME * frames
            + characters / CHARACTERS_A_TOKEN
        )
