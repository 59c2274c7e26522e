"""The connector: projects supports to the decoder's width, pools them, and puts a separator after every row."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aviot.backbones.attention import pooling_of
from aviot.ot.device import on_gpu

# Bounds memory, since a frame is three times as large in the decoder's width. 56 frames of 729 patches in a width of
# 3584 are 4466 tiles of 128 x 256, which keep an H200's 132 multiprocessors busy to the last (33.8 rounds).
FRAMES_AT_ONCE = 56


class Connector(nn.Module):
    """The map from K supports of S patches to K * rows * (columns + 1) decoder tokens (eq:supp_visual_tokens)."""

    def __init__(self, dim: int, width: int, grid: tuple[int, int], pool_stride: int) -> None:
        super().__init__()
        self.grid = grid
        self.pooled = (-(-grid[0] // pool_stride), -(-grid[1] // pool_stride))
        self.projector = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, width))
        self.row_separator = nn.Parameter(torch.zeros(width))

    @property
    def tokens_per_support(self) -> int:
        """The tokens of one support: those of its pooled rows, and one separator per row."""
        return self.pooled[0] * (self.pooled[1] + 1)

    def forward(self, features: Float[Tensor, "K S D"]) -> Float[Tensor, "K*tokens d"]:
        """Return the tokens of K supports, of one video or of several after each other, row by row.

        pool(W_2 gelu(W_1 x + b_1) + b_2) = W_2 pool(gelu(W_1 x + b_1)) + b_2, since pooling is linear and its weights
        sum to one: the last map runs on the pooled positions only.
        """
        pooled = [self._pool(self._hidden(chunk)) for chunk in self._chunks(features)]
        tokens = self.projector[2](_joined(pooled))  # [K,h,w+1,d]
        tokens[:, :, -1] = self.row_separator
        return tokens.flatten(0, 2)

    def unpooled(self, features: Float[Tensor, "K S D"]) -> Float[Tensor, "K S d"]:
        """Return projected tokens before pooling; `pool` of them are those of `forward`."""
        each = [self.projector[2](self._activation(self._hidden(chunk))) for chunk in self._chunks(features)]
        return _joined(each)

    @property
    def pooling(self) -> Float[Tensor, "rows columns P"]:
        """The weight of every token before pooling in each pooled cell."""
        patches = self.grid[0] * self.grid[1]
        return pooling_of(lambda unit: pool(unit, self.grid, self.pooled).flatten(1, 2), patches, self.pooled)

    def frame_means(self, features: Float[Tensor, "T S D"]) -> Float[Tensor, "T d"]:
        """Return the spatial mean of each projected frame, taken before the last linear map, with which it commutes."""
        return self.projector[2](_joined([self._mean(self._hidden(chunk)) for chunk in self._chunks(features)]))

    def _chunks(self, features: Float[Tensor, "K S D"]) -> Sequence[Float[Tensor, "k S D"]]:
        """Split frames into chunks; with a gradient, which stores all activations anyway, return them in one."""
        return (features,) if torch.is_grad_enabled() else features.split(FRAMES_AT_ONCE)

    def _hidden(self, features: Float[Tensor, "k S D"]) -> Float[Tensor, "k S d"]:
        """Return W_1 x + b_1."""
        return self.projector[0](features.to(self.row_separator.dtype))

    def _pool(self, hidden: Float[Tensor, "k S d"]) -> Float[Tensor, "k rows columns+1 d"]:
        """Return the activation on the pooled grid, with room for a separator after each row."""
        if self._by_kernels(hidden):
            from aviot.backbones.llava_video.kernels import gelu_pool  # needs triton

            return gelu_pool(hidden, self.grid, self.pooled)
        return F.pad(pool(self._activation(hidden), self.grid, self.pooled), (0, 0, 0, 1))

    def _mean(self, hidden: Float[Tensor, "k S d"]) -> Float[Tensor, "k d"]:
        if self._by_kernels(hidden):
            from aviot.backbones.llava_video.kernels import gelu_mean  # needs triton

            return gelu_mean(hidden)
        return self._activation(hidden).mean(1)

    def _by_kernels(self, hidden: Tensor) -> bool:
        """Return whether kernels fuse the activation with the pooling or mean after it; they have no gradient."""
        return on_gpu(hidden) and not hidden.requires_grad and hidden.dtype != torch.float64

    def _activation(self, hidden: Float[Tensor, "k S d"]) -> Float[Tensor, "k S d"]:
        """Return gelu(hidden), computed in place where no gradient is recorded."""
        return self.projector[1](hidden) if hidden.requires_grad else torch.ops.aten.gelu_(hidden)


def _joined(chunks: Sequence[Float[Tensor, "k ..."]]) -> Float[Tensor, "K ..."]:
    """Concatenate chunks; a single one is not copied."""
    return chunks[0] if len(chunks) == 1 else torch.cat(tuple(chunks))


def pool(
    lattice: Float[Tensor, "K S d"], grid: Sequence[int], pooled: Sequence[int]
) -> Float[Tensor, "K rows columns d"]:
    """Interpolate bilinearly, without corner alignment, from one grid to a smaller one, as two matrix products.

    Each product accumulates in float32 or better and rounds once, to the input's type.
    """
    rows = _interpolate(lattice.unflatten(1, tuple(grid)).flatten(2), pooled[0])  # [K,h,W*d]
    columns = _interpolate(rows.reshape(-1, grid[1], lattice.shape[-1]), pooled[1])  # [K*h,w,d]
    return columns.unflatten(0, (-1, pooled[0]))


def _interpolate(values: Float[Tensor, "P n c"], count: int) -> Float[Tensor, "P count c"]:
    """Return `count` points along the middle axis: sum_j w_ij v_j, w_ij = max(0, 1 - |s_i - j|).

    s_i = (i + 1/2) n / m - 1/2, clamped to the axis, is a multiple of 1 / 2m, and so are the weights. With a power of
    two as denominator they are exact in every floating type; the ratio of both denominators scales the sum.
    """
    problems, size, _ = values.shape
    source = ((2 * torch.arange(count, device=values.device) + 1) * size - count).clamp(0, 2 * count * (size - 1))
    distance = (source[:, None] - 2 * count * torch.arange(size, device=values.device)).abs()
    power = 2.0 ** (2 * count - 1).bit_length()
    weights = (2 * count - distance).clamp_min(0).to(values.dtype) / power  # [m,n]
    nothing = values.new_zeros(1, 1, 1)
    scale = power / (2 * count)
    return torch.baddbmm(nothing, weights.expand(problems, -1, -1), values, beta=0, alpha=scale)
