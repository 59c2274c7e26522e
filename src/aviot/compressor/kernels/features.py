"""What reads features, by kernels: region means, statistics and fused output, one pass each.

`region_means` and `fuse` are those of `aviot.compressor.regions` and `aviot.compressor.fusion`, with reverse passes.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aviot.compressor.fusion import combine, gate_weights, introduce_regions
from aviot.compressor.kernels.gate import gate_statistics
from aviot.compressor.kernels.means import RegionMeans
from aviot.compressor.kernels.mixing import Mix, mix_plans
from aviot.compressor.kernels.moments import branch_moments
from aviot.compressor.kernels.products import Products
from aviot.compressor.kernels.tables import Tables, tables
from aviot.compressor.kernels.transport import pitch_of
from aviot.compressor.layout import Layout
from aviot.compressor.level import Plan
from aviot.compressor.regions import Partition
from aviot.config import CompressorConfig
from aviot.ot import plogp


def region_means(partitions: Sequence[Partition], x: Float[Tensor, "B N S D"]) -> tuple[Float[Tensor, "B R N D"], ...]:
    """Means of every granularity's regions, coarse to fine, in float32."""
    return RegionMeans.apply(x, partitions).split([each.count for each in partitions], 1)


def fuse(
    x: Float[Tensor, "B N S D"],
    plans: Sequence[Plan],
    layout: Layout,
    gate: nn.Sequential,
    config: CompressorConfig,
    question: Float[Tensor, "B D"] | None,
    progress: float,
) -> tuple[Float[Tensor, "B K S D"], Float[Tensor, "B S K L"]]:
    """The fused features and gamma as the gate predicts it."""
    spare = pitch_of(layout) - layout.segments.longest
    rows = F.pad(torch.cat([plan.rows.float() for plan in plans], 1), (0, spare))[..., : layout.segments.longest]
    entropy = -plogp(rows.detach()).sum(-1) / math.log(max(2, x.shape[1]))
    known = tables(tuple(plan.partition for plan in plans), config.position.region_bands, x.device)
    products = None
    if gate_decides(config):
        products = Products.empty(len(x), known.groups, layout.segments)
        products.fill(x, like_features(question, x), known.groups, layout.segments)
    return fuse_rows(x, rows, entropy, products, known, layout, gate, config, question, progress)


def gate_decides(config: CompressorConfig) -> bool:
    """False where a branch's share is the same whatever it looks like."""
    return len(config.active_levels) > 1 and config.fusion != "equal"


@torch.no_grad()
def like_features(question: Float[Tensor, "B D"] | None, x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B D"]:
    """The question in the features' type; zero if there is none."""
    return x.new_zeros((len(x), x.shape[-1])) if question is None else question.to(x.dtype).contiguous()


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

    `products` are the features', None unless the gate decides.
    """
    recording = torch.is_grad_enabled()
    gates = _gates(x, rows, entropy, products, known, layout, gate, config, question, recording)
    applied = introduce_regions(gates, progress)
    if not recording:
        return mix_plans(x, rows, applied.contiguous(), known.regions, layout), gates
    here = torch.stack([rows.index_select(1, level.long()) for level in known.regions], 2)
    return Mix.apply(combine(here, applied, layout.kept), x, layout), gates


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
    recording: bool,
) -> Float[Tensor, "B S K L"]:
    levels = len(known.regions)
    if products is None:
        return rows.new_full((len(x), config.patches, layout.supports, levels), 1 / levels)
    with torch.no_grad():
        question = None if question is None else question.float().contiguous()
        moments = branch_moments(products, rows.detach(), known, layout, exact=x.dtype == torch.float32)
        statistics, gates = gate_statistics(
            moments, entropy, known.regions, x.shape[-1], question, gate, config.gate, decide=not recording
        )
    return gate_weights(gate, statistics, config.gate) if recording else gates
