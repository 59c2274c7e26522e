"""What reads features after the plans, by kernels: statistics, gates and fused output.

`fuse_rows` is `aviot.methods.aviot.fusion.fuse` with rows in place of plans.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.config import CompressorConfig
from aviot.methods.aviot.fusion import introduce_regions
from aviot.methods.aviot.kernels.gate import GateInputs
from aviot.methods.aviot.kernels.moments import branch_moments
from aviot.methods.aviot.kernels.products import Products
from aviot.methods.aviot.kernels.record import PlanRecord
from aviot.methods.aviot.kernels.reverse_gate import Gates
from aviot.methods.aviot.kernels.reverse_mixing import Mix
from aviot.methods.aviot.kernels.tables import Tables, tables
from aviot.methods.aviot.layout import Layout
from aviot.methods.aviot.stage import StageContext, partitions_of


def fuse_rows(
    config: CompressorConfig,
    gate: nn.Sequential,
    context: StageContext,
    record: PlanRecord,
    layout: Layout,
    products: Products | None,
) -> tuple[Float[Tensor, "B K S D"], Float[Tensor, "B S K L"]]:
    """Return the fused features and gamma as the gate predicts it; `products` is None unless a gate decides."""
    partitions = partitions_of(config)
    known = tables(partitions, config.position.region_bands, context.x.device)
    gates = _gates(config, gate, context, record, layout, products, known)
    applied = introduce_regions(gates, context.progress)
    return Mix.apply(context.x, record.rows, applied, partitions, known.regions, layout), gates


def _gates(
    config: CompressorConfig,
    gate: nn.Sequential,
    context: StageContext,
    record: PlanRecord,
    layout: Layout,
    products: Products | None,
    known: Tables,
) -> Float[Tensor, "B S K L"]:
    x, rows, question = context.x, record.rows, context.conditioning.question
    levels = len(known.regions)
    if products is None:
        return rows.new_full((len(x), config.patches, layout.supports, levels), 1 / levels)
    question = None if question is None else question.float().contiguous()
    with torch.no_grad():
        moments = branch_moments(products, rows.detach(), known, layout, exact=x.dtype == torch.float32)
    inputs = GateInputs(moments, record.entropy, known.regions, x.shape[-1], question)
    return Gates.apply(inputs, gate, config.gate, *gate.parameters())
