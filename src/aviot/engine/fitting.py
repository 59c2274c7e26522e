"""Checks that a method that acts inside a decoder fits the decoder and the prompt, before anything runs."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from aviot.engine.base import DecoderInput, Reducing
from aviot.methods.reduction import Entering, Reduction

LAYER_KINDS = {"full_attention", "linear_attention"}


def start(model: Any, inputs: DecoderInput, reducing: Reducing) -> Reduction:
    """Return a method's reduction of one prompt; raise ValueError if it cannot act inside this decoder."""
    decoder, name = model.get_decoder(), reducing.method.name
    if len(inputs.visual) != 1:
        raise ValueError(f"tokens are dropped inside the decoder for one prompt at a time, got {len(inputs.visual)}")
    others = sorted(set(getattr(decoder.config, "layer_types", None) or ()) - LAYER_KINDS)
    if others:
        raise ValueError(
            f"method {name!r} drops tokens inside the decoder, which works for layers of "
            f"{' and '.join(sorted(LAYER_KINDS))}, and this one has {', '.join(others)}; choose a method that acts "
            "before the decoder"
        )
    implementation = str(decoder.config._attn_implementation)
    if "flex" in implementation:
        raise ValueError(
            f"method {name!r} shortens attention masks, which {implementation!r} cannot; load the model with sdpa, "
            "eager or flash attention"
        )
    attends = tuple(hasattr(layer, "self_attn") for layer in decoder.layers)
    text = inputs.length - 1 - int(places_of(inputs)[-1])
    reduction = reducing.method.start(Entering(reducing.made, reducing.order, reducing.limit, attends, text))
    if overrides(reduction, "within") and not all(hasattr(one, "post_attention_layernorm") for one in decoder.layers):
        raise ValueError(
            f"method {name!r} acts before the feed-forward part of a layer, which is not found in "
            f"{type(decoder.layers[0]).__name__}; choose a method that acts before layers"
        )
    if overrides(reduction, "sees") and "flash" in implementation:
        raise ValueError(
            f"method {name!r} masks tokens while decoding, which {implementation!r} cannot; load the model with sdpa"
        )
    return reduction


def overrides(reduction: Reduction, name: str) -> bool:
    """Return whether a reduction does more at a point than the base class, which does nothing."""
    return getattr(type(reduction), name) is not getattr(Reduction, name)


def places_of(inputs: DecoderInput) -> Int[Tensor, "n"]:
    """Return the places of the visual tokens in the sequence of a single prompt."""
    ((first, count),) = inputs.visual
    (places,) = inputs.scattered or (torch.arange(first, first + count),)
    return places
