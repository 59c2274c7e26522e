"""A method of another package, in one file."""

import torch

from aviot.methods import Compressed, TokenMethod


class EveryNth(TokenMethod):
    """Keep evenly spaced tokens of the whole video."""

    name = "every-nth"

    def compress(self, video, *, question, budget):
        """Pick tokens by their flat index: frame by frame, row by row."""
        count = video.limit(budget)
        index = torch.linspace(0, video.frames * video.patches - 1, count).round().long()
        return Compressed.kept(video, index.to(video.features.device))
