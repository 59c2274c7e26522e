"""One granularity's transport: supports are initialised, then refined by the coupling they induce.

A support is always a mixture of its segment's sources, so it is stored as a row of weights over them. The embedding's
first linear map commutes with mixing; supports are therefore moved in the transport space's width, not the features'.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import LevelConfig, TransportConfig
from aviot.methods.aviot.metric import Metric
from aviot.methods.aviot.numerics import squared_distances
from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.segments import Layout
from aviot.ot import Coupling, solve


@dataclass(frozen=True)
class LevelPlan:
    """One granularity's transport plan in one stage, for each of its R regions, in the precision of its solve."""

    name: str
    partition: Partition
    layout: Layout
    rows: Float[Tensor, "B R K n"]  # A, each support's distribution over its own segment's sources
    mass: Float[Tensor, "B R K"]  # m, the mass that each support receives
    stabilizer: float
    describe: Callable[[], Float[Tensor, "B R N D"]]  # the descriptors that were transported

    @cached_property
    def conditional(self) -> Float[Tensor, "B R K N"]:
        """A over all sources."""
        return self.layout.dense(self.rows)

    @cached_property
    def sources(self) -> Float[Tensor, "B R N D"]:
        """The descriptors that were transported."""
        return self.describe()

    @cached_property
    def supports(self) -> Float[Tensor, "B R K D"]:
        """The supports, z_j = sum_i P_ij x_i / (m_j + delta) (eq:supp_barycentric_reconstruction)."""
        unchanged = self.layout.unchanged[:, None, :, None]
        shrink = torch.where(unchanged, 1.0, (self.mass / (self.mass + self.stabilizer))[..., None])
        return self.layout.mix(self.rows, self.sources) * shrink

    @cached_property
    def region_of_patch(self) -> Int[Tensor, "S"]:
        """The region that holds each patch."""
        return self.partition.region_of_patch(self.rows.device)


def start_rows(
    level: LevelConfig, layout: Layout, parent: Float[Tensor, "B R K n"] | None, dtype: torch.dtype
) -> Float[Tensor, "B #R K n"]:
    """Return z_0 = beta sum_i A^pa(r)_ij x_i + (1 - beta) z_uni, as rows (eq:supp_parent_initialization).

    Without a parent z_uni alone. The parent's distributions carry no gradient.
    """
    uniform = layout.uniform_rows(dtype)
    if parent is None:
        return uniform
    return torch.lerp(uniform.expand_as(parent), parent.detach().to(dtype), level.parent_weight)


def transport(
    level: LevelConfig,
    config: TransportConfig,
    metric: Metric,
    weights: Float[Tensor, "B C"] | None,
    sources: Float[Tensor, "B R N D"],
    start: Float[Tensor, "B #R K n"],
    layout: Layout,
) -> Coupling:
    """Alternate coupling and barycentric update for the level's rounds, from the given start.

    Supports are detached between rounds, so all rounds but the last need no graph: gradients flow through the last
    round's cost and update (and, with one round, through the start).
    """
    lifted = metric.lift(sources)
    place = partial(metric.place, weights=weights)
    points = layout.segments.split(place(lifted))  # [B,R,M,n,C]

    origin = metric.lift(sources.new_zeros((1, 1, 1, sources.shape[-1])))  # rows miss one by delta

    def couple(rows: Tensor, basis: Tensor) -> Coupling:
        mixed = layout.mix(rows.expand(-1, basis.shape[1], -1, -1), basis)
        supports = layout.pad(place(mixed + (1 - rows.sum(-1, keepdim=True)) * origin))
        return solve(
            squared_distances(points, supports),
            level.epsilon,
            config,
            source_count=layout.segments.sizes(layout.device),
            support_count=layout.budgets[:, None],
        )

    rows = start
    with torch.no_grad():
        for _ in range(level.rounds - 1):
            coupling = couple(rows, lifted)
            rows = layout.pack((coupling.plan / (coupling.mass + config.stabilizer)[..., None, :]).mT)
    detached = level.rounds > 1 and torch.is_grad_enabled()
    return couple(rows, metric.lift(sources.detach()) if detached else lifted)


def finish(
    level: LevelConfig,
    config: TransportConfig,
    partition: Partition,
    sources: Float[Tensor, "B R N D"],
    coupling: Coupling,
    layout: Layout,
) -> LevelPlan:
    """Return the level's plan: the coupling, or the identity where a segment has a support for every source."""
    unchanged = layout.unchanged[:, None, :]
    sizes = layout.segments.sizes(layout.device)[layout.segment][:, None].to(sources.dtype)  # [B,1,K]
    identity = layout.uniform_rows(sources.dtype)
    return LevelPlan(
        name=level.name,
        partition=partition,
        layout=layout,
        rows=torch.where(unchanged[..., None], identity, layout.pack(coupling.conditional.mT)),
        mass=torch.where(unchanged, 1 / sizes, layout.pack(coupling.mass[..., None])[..., 0]),
        stabilizer=config.stabilizer,
        describe=lambda: sources,
    )
