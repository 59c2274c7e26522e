"""From supports to decoder tokens: project, pool, and put a separator after every row."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

FRAMES_AT_ONCE = 32  # in the decoder's width a frame is three times as large


class Connector(nn.Module):
    """K supports of S patches become K * rows * (columns + 1) tokens of the decoder's width (eq:supp_visual_tokens)."""

    def __init__(self, dim: int, width: int, grid: tuple[int, int], pool_stride: int) -> None:
        super().__init__()
        self.grid = grid
        self.pooled = tuple(-(-side // pool_stride) for side in grid)
        self.projector = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, width))
        self.row_separator = nn.Parameter(torch.zeros(width))

    @property
    def tokens_per_support(self) -> int:
        """Pooled rows, each with its separator."""
        return self.pooled[0] * (self.pooled[1] + 1)

    def forward(self, features: Float[Tensor, "K S D"]) -> Float[Tensor, "K*tokens d"]:
        """The tokens of one video, row after row."""
        projected = self.projector(features.to(self.row_separator.dtype))
        lattice = projected.unflatten(1, self.grid).permute(0, 3, 1, 2)  # [K,d,H,W]
        pooled = F.interpolate(lattice.float(), size=self.pooled, mode="bilinear", align_corners=False)
        rows = pooled.to(projected.dtype).permute(0, 2, 3, 1)  # [K,h,w,d]
        separators = self.row_separator.expand(*rows.shape[:2], 1, -1)
        return torch.cat((rows, separators), 2).flatten(0, 2)

    @torch.no_grad()
    def frame_means(self, features: Float[Tensor, "T S D"]) -> Float[Tensor, "T d"]:
        """The spatial mean of each projected frame, taken before the last linear map, with which it commutes."""
        first, activation, last = self.projector
        chunks = features.to(self.row_separator.dtype).split(FRAMES_AT_ONCE)
        return last(torch.cat([activation(first(chunk)).mean(1) for chunk in chunks]))
