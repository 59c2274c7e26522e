"""Attention weights of a few queries, computed from a layer's own weights, whatever kernel the layer itself runs."""

import sys
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention_rows(
    module: nn.Module,
    hidden: Float[Tensor, "1 L d"],
    rotary: tuple[Float[Tensor, "1 L h"], Float[Tensor, "1 L h"]],
    queries: int = 1,
    past: Float[Tensor, "1 kv_heads p h"] | None = None,
) -> Float[Tensor, "heads queries L"]:
    """Return a self-attention's weights of the last tokens over all tokens, in float32; no token sees later ones.

    `past` has the cached keys of tokens before these.
    """
    attention: Any = module
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
    length, size = hidden.shape[1], attention.head_dim

    def rotated(parts: Float[Tensor, "1 l heads h"], norm: str, first: int) -> Float[Tensor, "1 heads l h"]:
        if hasattr(attention, norm):
            parts = getattr(attention, norm)(parts)
        parts = parts.transpose(1, 2)
        return rotate(parts, parts, *(one[:, first:] for one in rotary))[0]

    count = min(queries, length)
    projected = attention.q_proj(hidden[:, -count:]).unflatten(-1, (attention.config.num_attention_heads, -1))
    query = rotated(projected[..., :size], "q_norm", length - count)  # a gate may follow each head's query
    key = rotated(attention.k_proj(hidden).unflatten(-1, (-1, size)), "k_norm", 0)
    key = key if past is None else torch.cat((past, key), 2)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = (query.float() @ key.float().mT)[0] * attention.scaling
    later = torch.ones((count, count), dtype=torch.bool, device=scores.device).triu(1)
    scores[..., -count:] = scores[..., -count:].masked_fill(later, -torch.inf)
    return scores.softmax(-1)
