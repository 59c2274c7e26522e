"""Launches of the branches' moments."""

import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.branch_moments.forward import KINDS, MOMENTS, boundary_changes, quadratic_forms
from aviot.methods.aviot.kernels.common import RegionTables
from aviot.methods.aviot.kernels.gram import GramMatrices
from aviot.methods.aviot.segments import Layout
from aviot.ot.sinkhorn import block

FORMS = 128  # rows of one tile of forms


def branch_moments(
    gram: GramMatrices,
    rows: Float[Tensor, "B regions K n"],
    tables: RegionTables,
    layout: Layout,
    *,
    exact: bool,
) -> Float[Tensor, "B S K L 4"]:
    """Return size, change, spread and question product of every branch; the first support's change is not set.

    `exact` computes the forms in float32 precision, else with factors of ten bits.
    """
    (levels, patches), segments = tables.regions.shape, layout.segments
    batch, slots, _, _, sources = gram.within.shape
    moments = rows.new_empty((batch, patches, layout.supports, levels, MOMENTS.value))
    ends = rows.new_empty((batch, slots, segments.count, 2, levels))
    counts = (segments.longest, segments.full, segments.count)
    shape = (patches, rows.shape[1], layout.supports, rows.stride(-2), *counts)
    forms = KINDS.value * levels
    tile = max(FORMS * 64 // max(64, sources), block(forms))
    quadratic_forms[(len(tables.groups) * segments.count, triton.cdiv(layout.slots, tile // forms), batch)](
        gram.within,
        gram.vectors,
        rows,
        tables.regions,
        tables.groups,
        layout.budgets,
        moments,
        ends,
        *shape,
        slots,
        tables.groups.shape[1],
        LEVELS=levels,
        PRECISION="tf32x3" if exact else "tf32",
        MB=block(segments.count),
        VB=tile,
        NB=sources,
        num_warps=8 if tile * sources >= 8192 else 4,
        num_stages=1 if exact and sources > 64 else 3,  # or its tiles would not fit in a multiprocessor's memory
    )
    if segments.count > 1:
        boundary_changes[(slots * (segments.count - 1), batch)](
            gram.ahead,
            gram.vectors,
            ends,
            rows,
            tables.regions,
            tables.groups,
            layout.budgets,
            moments,
            *shape,
            slots,
            LEVELS=levels,
            MB=block(segments.count),
            NB=sources,
        )
    return moments
