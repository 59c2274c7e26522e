"""Spatial partitions of the patch grid: region means, parents, position codes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from aviot.methods.aviot.metric import Linear
from aviot.methods.aviot.numerics import working_dtype

FRAMES_AT_ONCE = 32  # per chunk that is cast to the precision of the solve
DESCRIPTOR_EPS = 1e-5  # of the affine-free layer norm on region means (published weights were trained with it)


@dataclass(frozen=True)
class Partition:
    """A grid of H x W patches divided into rows x columns cells, as equal as possible.

    Along a side of n patches in p cells, cell i starts at ceil(i n / p), so patch y lies in cell floor(y p / n). Sizes
    differ by one at most, and a partition whose counts are multiples of another's nests inside it.
    """

    grid: tuple[int, int]
    cells: tuple[int, int]

    @property
    def count(self) -> int:
        """R, the number of regions."""
        return self.cells[0] * self.cells[1]

    def region_of_patch(self, device: torch.device) -> Int[Tensor, "S"]:
        """Return r(s), the region that holds each patch, both in row-major order."""
        row, column = (self._cell_of(axis, device) for axis in (0, 1))
        return (row[:, None] * self.cells[1] + column).flatten()

    def parents(self, coarser: "Partition", device: torch.device) -> Int[Tensor, "R"]:
        """Return pa(r), the coarser region that holds each region's centre."""
        row, column = (
            (2 * torch.arange(fine, device=device) + 1) * coarse // (2 * fine)
            for fine, coarse in zip(self.cells, coarser.cells, strict=True)
        )
        return (row[:, None] * coarser.cells[1] + column).flatten()

    def mean(self, x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B R N D"]:
        """Average the patches of each region in the precision of the solve, in chunks of frames if a cast is needed."""
        dtype = working_dtype(x.dtype)
        if self.count == 1:
            return x.mean(2, dtype=dtype)[:, None]
        if x.dtype == dtype:
            return self._mean(x)
        return torch.cat([self._mean(some.to(dtype)) for some in x.split(FRAMES_AT_ONCE, 1)], 2)

    def _mean(self, x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B R N D"]:
        """Average one axis after the other."""
        rows = self._averaging(0, x) @ (self._averaging(1, x) @ x.unflatten(2, self.grid)).flatten(3)  # [B,N,rows,:]
        return rows.unflatten(-1, (self.cells[1], x.shape[-1])).flatten(2, 3).transpose(1, 2)

    def sizes(self, device: torch.device) -> Float[Tensor, "R"]:
        """Return the number of patches in each region."""
        rows, columns = (
            (each[:, None] == torch.arange(count, device=device)).sum(0)
            for each, count in zip((self._cell_of(0, device), self._cell_of(1, device)), self.cells, strict=True)
        )
        return (rows[:, None] * columns).flatten().float()

    def nests_in(self, coarser: "Partition") -> bool:
        """Return True if every region lies inside one region of the coarser partition."""
        return all(fine % coarse == 0 for fine, coarse in zip(self.cells, coarser.cells, strict=True))

    def coarsen(self, coarser: "Partition", means: Float[Tensor, "B R N D"]) -> Float[Tensor, "B r N D"]:
        """Return the coarser regions' means from these, weighted by their patches; the partitions must nest."""
        return torch.einsum("cr,brnd->bcnd", self._share(coarser, means), means)

    def _share(self, coarser: "Partition", like: Tensor) -> Float[Tensor, "r R"]:
        """Return the fraction of each coarser region's patches that each region holds."""
        fine, coarse = (
            (each.region_of_patch(like.device)[:, None] == torch.arange(each.count, device=like.device)).to(like.dtype)
            for each in (self, coarser)
        )
        return coarse.T @ fine / coarse.sum(0)[:, None]

    def position_code(self, bands: int, like: Tensor) -> Float[Tensor, "R code"]:
        """Return [sin 2 pi f y, cos 2 pi f y, sin 2 pi f x, cos 2 pi f x] of the region centres, f = 1 .. bands."""
        frequency = 2 * torch.pi * torch.arange(1, bands + 1, device=like.device, dtype=like.dtype)
        codes = []
        for count in self.cells:
            centre = (torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) / count
            angle = centre[:, None] * frequency
            codes.append(torch.cat((angle.sin(), angle.cos()), -1))
        row, column = codes
        pairs = torch.broadcast_tensors(row[:, None, :], column[None, :, :])
        return torch.cat(pairs, -1).flatten(0, 1)

    def _cell_of(self, axis: int, device: torch.device) -> Int[Tensor, "side"]:
        return torch.arange(self.grid[axis], device=device) * self.cells[axis] // self.grid[axis]

    def _averaging(self, axis: int, like: Tensor) -> Float[Tensor, "cells side"]:
        """Return the matrix that averages a side's patches into its cells."""
        member = torch.arange(self.cells[axis], device=like.device)[:, None] == self._cell_of(axis, like.device)
        return member.to(like.dtype) / member.sum(-1, keepdim=True)


def regional_descriptors(
    means: Float[Tensor, "B R N D"], partition: Partition, position: Linear, bands: int
) -> Float[Tensor, "B R N D"]:
    """Return LN(region mean) + p_r, with p_r a learned map of the region centre's code (eq:supp_region_descriptor)."""
    place = position(partition.position_code(bands, means))
    return F.layer_norm(means, means.shape[-1:], eps=DESCRIPTOR_EPS).add_(place[:, None, :])


def descriptors(
    means: Float[Tensor, "B R N D"], partition: Partition, position: Linear, bands: int
) -> Float[Tensor, "B R N D"]:
    """Return the descriptors that are transported: a frame's mean unchanged, regions' normalised plus position."""
    return means if partition.count == 1 else regional_descriptors(means, partition, position, bands)


def region_means(partitions: Sequence[Partition], x: Float[Tensor, "B N S D"]) -> tuple[Float[Tensor, "B R N D"], ...]:
    """Return the means of every granularity's regions, coarse to fine; x is read once where the partitions nest."""
    finest = partitions[-1]
    fine = finest.mean(x)
    coarse = (finest.coarsen(each, fine) if finest.nests_in(each) else each.mean(x) for each in partitions[:-1])
    return (*coarse, fine)
