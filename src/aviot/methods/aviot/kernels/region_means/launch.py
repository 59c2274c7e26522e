"""Region means of all granularities, with gradients."""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.common import patch_regions, region_offsets, shape_cache
from aviot.methods.aviot.kernels.region_means.backward import spread_gradient
from aviot.methods.aviot.kernels.region_means.forward import average_patches, average_regions
from aviot.methods.aviot.regions import Partition

FRAMES, CHANNELS = 8, 128  # of one tile
BLOCK = 512  # values of one program of `average_regions`
_regions = shape_cache(patch_regions)


@shape_cache
def _shares(partitions: tuple[Partition, ...], device: torch.device) -> Float[Tensor, "regions"]:
    """Return one over the number of patches of every region."""
    return 1 / torch.cat([each.sizes(device) for each in partitions])


class RegionMeans(torch.autograd.Function):
    """`region_means` with gradients; returns the features too, for later readers.

    Both gradients then arrive here and are added while the means' is spread, in one pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "B N S D"], partitions: tuple[Partition, ...]
    ) -> tuple[Float[Tensor, "B regions N D"], Float[Tensor, "B N S D"]]:
        """Average every region, and return the features unchanged beside the means."""
        ctx.partitions, ctx.like, ctx.shape = partitions, x.new_empty(0), x.shape
        ctx.set_materialize_grads(False)
        return region_means(partitions, x), x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        """Spread the means' gradient over the patches and add the features' own."""
        gradient, beside = gradients
        if gradient is None:
            return beside, None
        gradient = gradient.contiguous()
        grad_x = ctx.like.new_empty(ctx.shape)
        batch, frames, patches, dim = ctx.shape
        grid = (patches, batch * triton.cdiv(frames, FRAMES), triton.cdiv(dim, CHANNELS))
        spread_gradient[grid](
            gradient,
            gradient if beside is None else beside.contiguous(),
            grad_x,
            _regions(ctx.partitions, gradient.device),
            _shares(ctx.partitions, gradient.device),
            frames,
            patches,
            dim,
            gradient.shape[1],
            LEVELS=len(ctx.partitions),
            BESIDE=beside is not None,
            BN=FRAMES,
            BD=CHANNELS,
        )
        return grad_x, None


def region_means(partitions: Sequence[Partition], x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B regions N D"]:
    """Return the means of every granularity's regions one after the other, coarse to fine, in float32."""
    batch, frames, _, dim = x.shape
    regions = sum(each.count for each in partitions)
    means = x.new_empty((batch, regions, frames, dim), dtype=torch.float32)
    offsets = region_offsets(partitions)
    for depth in reversed(range(len(partitions))):
        each, offset = partitions[depth], offsets[depth]
        finer = next((other for other in range(depth + 1, len(partitions)) if partitions[other].nests_in(each)), None)
        if finer is None:
            blocks = (each.count, batch * triton.cdiv(frames, FRAMES), triton.cdiv(dim, CHANNELS))
            average_patches[blocks](
                x, means, frames, dim, *each.grid, *each.cells, regions, offset, BN=FRAMES, BD=CHANNELS
            )
        else:
            blocks = (each.count, triton.cdiv(frames * dim, BLOCK), batch)
            cells = (*each.grid, *each.cells, *partitions[finer].cells)
            average_regions[blocks](means, frames * dim, *cells, regions, offset, offsets[finer], BLOCK=BLOCK)
    return means
