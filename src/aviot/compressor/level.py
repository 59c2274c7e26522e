"""One granularity's transport: supports that start somewhere and are refined by the coupling they induce."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.compressor.layout import Layout
from aviot.compressor.numerics import squared_distances
from aviot.compressor.regions import Partition
from aviot.config import LevelConfig, TransportConfig
from aviot.ot import Coupling, solve


@dataclass(frozen=True)
class Plan:
    """What one granularity decided in one stage, for each of its R regions, in the precision it was solved in."""

    name: str
    partition: Partition
    sources: Float[Tensor, "B R N D"]  # the descriptors that were transported
    supports: Float[Tensor, "B R K D"]  # where they went, in descriptor space
    flow: Float[Tensor, "B R M n k"]  # P, the realised mass, segment by segment, zero in padding
    conditional: Float[Tensor, "B R K N"]  # A, one distribution over sources a support

    @cached_property
    def region_of_patch(self) -> Int[Tensor, "S"]:
        """The region that holds each patch."""
        return self.partition.region_of_patch(self.conditional.device)

    def on_patches(self, dtype: torch.dtype) -> Float[Tensor, "B S K N"]:
        """A spread from the regions to their patches."""
        return self.conditional.to(dtype).index_select(1, self.region_of_patch)


def start_supports(
    level: LevelConfig,
    sources: Float[Tensor, "B R N D"],
    layout: Layout,
    parent: Float[Tensor, "B R K N"] | None,
) -> Float[Tensor, "B R K D"]:
    """z_0 = beta sum_i A^pa(r)_ij x_i + (1 - beta) z_uni (eq:supp_parent_initialization); z_uni without a parent.

    The parent's distributions carry no gradient.
    """
    uniform = layout.take_sources(sources, layout.uniform_sources)
    if parent is None:
        return uniform
    return level.parent_weight * (parent.detach() @ sources) + (1 - level.parent_weight) * uniform


def transport(
    level: LevelConfig,
    config: TransportConfig,
    embed: Callable[[Tensor], Tensor],
    sources: Float[Tensor, "B R N D"],
    supports: Float[Tensor, "B R K D"],
    layout: Layout,
) -> tuple[Coupling, Float[Tensor, "B R K D"]]:
    """Alternate coupling and barycentric update for the level's rounds, from the supports given.

    `embed` takes descriptors to the question's transport space. Supports are cut from the graph between rounds, so all
    rounds but the last need none: gradients flow through the last round's cost and update (and, with one round,
    through the start).
    """
    points = layout.segments.split(sources)  # [B,R,M,n,D]
    embedded = layout.segments.split(embed(sources))  # [B,R,M,n,C]

    def one_round(supports: Tensor) -> tuple[Coupling, Tensor]:
        coupling = solve(
            squared_distances(embedded, layout.pad(embed(supports))),
            level.epsilon,
            config,
            source_count=layout.segments.sizes(layout.device),
            support_count=layout.budgets[:, None],
        )
        return coupling, layout.pack(coupling.barycentre(points, config.stabilizer))

    with torch.no_grad():
        for _ in range(level.rounds - 1):
            _, supports = one_round(supports)
    return one_round(supports)


def finish(
    level: LevelConfig,
    partition: Partition,
    sources: Float[Tensor, "B R N D"],
    coupling: Coupling,
    supports: Float[Tensor, "B R K D"],
    layout: Layout,
) -> Plan:
    """The level's plan, with the identity in place of the coupling where a segment has a support for every source."""
    kept = layout.identity[:, None, :, None, None]  # [B,1,M,1,1]
    n, k = coupling.log_plan.shape[-2:]
    identity = torch.eye(n, k, dtype=sources.dtype, device=sources.device) * layout.slot_mask[:, None, :, None, :]
    sizes = layout.segments.sizes(layout.device)[:, None, None]
    starts = layout.take_sources(sources, layout.uniform_sources)
    return Plan(
        name=level.name,
        partition=partition,
        sources=sources,
        supports=torch.where(layout.kept[:, None, :, None], starts, supports),
        flow=torch.where(kept, identity / sizes, coupling.plan),
        conditional=layout.dense(torch.where(kept, identity, coupling.conditional)),
    )
