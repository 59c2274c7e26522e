"""What reads features after the plans, by kernels: statistics, gates and fused output.

`fuse_rows` is `aviot.methods.aviot.fusion.fuse` with rows in place of plans.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.config import CompressorConfig
from aviot.methods.aviot.fusion import introduce_regions
from aviot.methods.aviot.kernels.moments import branch_moments
from aviot.methods.aviot.kernels.products import Products
from aviot.methods.aviot.kernels.reverse_gate import Gates
from aviot.methods.aviot.kernels.reverse_mixing import Mix
from aviot.methods.aviot.kernels.tables import Tables
from aviot.methods.aviot.layout import Layout
from aviot.methods.aviot.stage import partitions_of


def fuse_rows(
    x: Float[Tensor, "B N S D"],
    rows: Float[Tensor, "B regions K n"],
    entropy: Float[Tensor, "B regions K"],
    products: Products | None,
    known: Tables,
    layout: Layout,
    gate: nn.Sequential,
    config: CompressorConfig,
    question: Float[Tensor, "B D"] | None,
    progress: float,
) -> tuple[Float[Tensor, "B K S D"], Float[Tensor, "B S K L"]]:
    """Rows of all granularities' regions one after the other in place of plans; `entropy` is each row's, over log N.

    `products` are the features', None unless a gate decides.
    """
    gates = _gates(x, rows, entropy, products, known, layout, gate, config, question)
    applied = introduce_regions(gates, progress)
    return Mix.apply(x, rows, applied, partitions_of(config), known.regions, layout), gates


def _gates(
    x: Tensor,
    rows: Tensor,
    entropy: Tensor,
    products: Products | None,
    known: Tables,
    layout: Layout,
    gate: nn.Sequential,
    config: CompressorConfig,
    question: Tensor | None,
) -> Float[Tensor, "B S K L"]:
    levels = len(known.regions)
    if products is None:
        return rows.new_full((len(x), config.patches, layout.supports, levels), 1 / levels)
    question = None if question is None else question.float().contiguous()
    with torch.no_grad():
        moments = branch_moments(products, rows.detach(), known, layout, exact=x.dtype == torch.float32)
    return Gates.apply(moments, entropy, known.regions, x.shape[-1], question, gate, config.gate, *gate.parameters())
