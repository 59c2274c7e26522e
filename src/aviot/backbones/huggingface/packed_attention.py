"""Attention of encoders that pack frames or windows into one sequence, in one kernel launch per layer.

Without the flash-attn package, transformers runs such an encoder segment by segment: 40,000 launches for 64 frames of
720p in Qwen2.5-VL. torch's own attention over sequences of variable length computes the same in one launch.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

varlen_attn: Callable[..., Tensor] | None
try:
    from torch.nn.attention.varlen import varlen_attn  # type: ignore[assignment]
except ImportError:  # torch before 2.10
    varlen_attn = None

NAME = "aviot_flash_packed"  # transformers hands whole packed sequences only to names with "flash" in them
HALF = (torch.bfloat16, torch.float16)
MULTIPLE, MOST = 8, 256  # head widths that the kernel takes: multiples of 8, at most 256


def packed_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads n h"],
    key: Float[Tensor, "1 heads n h"],
    value: Float[Tensor, "1 heads n h"],
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: Int[Tensor, "s+1"],
    max_length_q: int,
    **unused: Any,
) -> tuple[Float[Tensor, "1 n heads h"], None]:
    """Return the attention within each segment; `cu_seq_lens_q` has the segments' ends, and zero before them."""
    width = query.shape[-1]
    if varlen_attn is None or not _fits(query, width) or abs(scaling * width**0.5 - 1) > 1e-6:
        return _by_segment(module, query, key, value, scaling, cu_seq_lens_q.diff().tolist()), None
    ends = cu_seq_lens_q.to(torch.int32)
    packed = (part[0].transpose(0, 1) for part in (query, key, value))
    return varlen_attn(*packed, ends, ends, max_length_q, max_length_q)[None], None


def _fits(query: Tensor, width: int) -> bool:
    return query.is_cuda and query.dtype in HALF and width % MULTIPLE == 0 and width <= MOST


def _by_segment(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float, lengths: list[int]
) -> Float[Tensor, "1 n heads h"]:
    """Return the same for types and devices that the kernel does not take, as transformers does it."""
    parts = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    return torch.cat(
        [sdpa_attention_forward(module, *part, None, scaling=scaling, is_causal=False)[0] for part in parts], 1
    )


def use_packed_attention(encoder: Any) -> None:
    """Make an encoder on a GPU use `packed_attention` for its sequences, unless its user chose another than sdpa."""
    if varlen_attn is None or encoder.device.type != "cuda" or encoder.config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, packed_attention)
    encoder.config._attn_implementation = NAME
