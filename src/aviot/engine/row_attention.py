"""Attention of a batch's newest tokens without copies of the cache for every head that shares it.

With grouped heads, transformers repeats keys and values for each head of a group wherever there is a mask: at every
token, seven times the whole cache of a Qwen2-7B is written and read again. The heads of a group are queries of one and
the same cache, so here they are given as such.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "aviot_rows"


def row_attention(
    module: nn.Module,
    query: Float[Tensor, "n heads q h"],
    key: Float[Tensor, "n kv_heads l h"],
    value: Float[Tensor, "n kv_heads l h"],
    attention_mask: Float[Tensor, "n 1 q l"] | None,
    **options: Any,
) -> tuple[Float[Tensor, "n q heads h"], None]:
    """Return what sdpa does; one masked query per row is computed without repeating keys and values."""
    heads = key.shape[1]
    alone = query.shape[2] == 1 and attention_mask is not None and query.shape[1] > heads
    if not alone or options.get("dropout") or options.get("position_bias") is not None or options.get("softcap"):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    groups = query[:, :, 0].unflatten(1, (heads, -1))  # [n, kv_heads, group, h]: the group's heads as queries
    found = scaled_dot_product_attention(groups, key, value, attn_mask=attention_mask, scale=options.get("scaling"))
    return found.flatten(1, 2)[:, None], None


def use_row_attention(decoder: Any) -> None:
    """Make a decoder with grouped heads use `row_attention`, unless its user chose another kernel than sdpa."""
    config = decoder.config
    shared = getattr(config, "num_key_value_heads", None)
    if config._attn_implementation != "sdpa" or shared in (None, config.num_attention_heads):
        return
    AttentionInterface.register(NAME, row_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    config._attn_implementation = NAME
