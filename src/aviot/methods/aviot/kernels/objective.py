"""The objective by kernels: a few sums per stage, and then all stages' terms from those together."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.config import ObjectiveConfig
from aviot.methods.aviot.kernels.common import edge_count, shape_cache
from aviot.methods.aviot.kernels.continuity import PlanDivergence, edge_weights
from aviot.methods.aviot.kernels.distortion import Distortion
from aviot.methods.aviot.kernels.gate_terms import GateMeans
from aviot.methods.aviot.kernels.patch_motion import patch_motion
from aviot.methods.aviot.objective import imbalance, shortfall
from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.stage import Stage


@dataclass(frozen=True)
class AllRegions:
    """The plans of all granularities' regions one after the other, coarse to fine, with their gradients."""

    rows: Float[Tensor, "B regions K n"]
    mass: Float[Tensor, "B regions K"]
    sources: Float[Tensor, "B regions N D"]
    means: Float[Tensor, "B regions N D"]


@dataclass(frozen=True)
class KernelStage(Stage):
    """The record of a stage that kernels ran with gradients."""

    all_regions: AllRegions


class KernelObjective:
    """The objective by kernels, of stages that kernels ran with gradients."""

    def patch_motion(self, u: Float[Tensor, "B T S D"]) -> Float[Tensor, "B S"]:
        """Return the mean change of every patch from frame to frame."""
        return patch_motion(u)

    def stage_terms(
        self, stages: Sequence[Stage], change: Float[Tensor, "B S"], config: ObjectiveConfig
    ) -> Float[Tensor, "stages 6 B"]:
        """Return `ObjectiveTerms` of every stage; `change` is the patches' motion."""
        levels, grid = stages[0].gates.shape[-1], stages[0].plans[0].partition.grid
        if levels == 1:
            temporal = torch.stack([_distortions(stage)[..., 0] for stage in stages])
            return torch.stack((temporal, *(torch.zeros_like(temporal),) * 5), 1)
        sums = torch.stack([_stage_sums(stage, change, config) for stage in stages])
        *three, step, weights, share, negentropy = sums.split([1, 1, 1, 1, 1, levels, 1], -1)
        variation = step / weights if edge_count(grid) else step
        balance = imbalance(share, config)[..., None]
        return torch.cat((*three, variation, balance, shortfall(negentropy, levels, config.entropy_floor)), -1).mT


def _all_regions(stage: Stage) -> AllRegions:
    if not isinstance(stage, KernelStage):
        raise TypeError(f"expected a stage that kernels ran with gradients, got {type(stage).__name__}")
    return stage.all_regions


def _stage_sums(stage: Stage, change: Float[Tensor, "B S"], config: ObjectiveConfig) -> Float[Tensor, "B L+6"]:
    """Return temporal and regional distortion, continuity, and the sums of `GateMeans`."""
    regions = _all_regions(stage)
    partitions = tuple(plan.partition for plan in stage.plans)
    weights = edge_weights(regions.means, partitions, config.continuity_scale)
    continuity = (PlanDivergence.apply(regions.rows, partitions) * weights).sum(1, keepdim=True)
    gates = GateMeans.apply(stage.gates, change, partitions[0].grid, config.motion_scale)
    return torch.cat((_distortions(stage), continuity, gates), 1)


def _distortions(stage: Stage) -> Float[Tensor, "B 2"]:
    """Return the whole frame's distortion summed over segments, and the regional mean of the granularities' means."""
    regions, layout = _all_regions(stage), stage.layout
    each = Distortion.apply(regions.rows, regions.mass, regions.sources, layout, stage.plans[0].stabilizer)
    shares = _shares(tuple(plan.partition for plan in stage.plans), layout.segments.count, each.device)
    return (each[:, None] * shares).sum((-2, -1))


@shape_cache
def _shares(partitions: tuple[Partition, ...], segments: int, device: torch.device) -> Float[Tensor, "2 regions 1"]:
    """Return the weight of each region's segments in the temporal and in the regional distortion."""
    levels = len(partitions) - 1
    regional = [
        torch.full((each.count,), 1 / (each.count * segments * levels), device=device) for each in partitions[1:]
    ]
    whole = torch.ones(1, device=device)
    temporal = [torch.zeros_like(each) for each in regional]
    return torch.stack((torch.cat((whole, *temporal)), torch.cat((0 * whole, *regional))))[..., None]
