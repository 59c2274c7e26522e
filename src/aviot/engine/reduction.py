"""Visual tokens that leave inside a decoder, by hooks on its layers: one mechanism for every method of that kind.

The engine asks a method's `Reduction` before each layer and between each layer's attention and feed-forward part. From
there on hidden states, positions, masks and caches hold what stays alone. Tokens keep the positions that they had, and
so do the tokens that are decoded after them. Steps are decided in the prefill; a pass without a cache, which reads the
prompt again, repeats them.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from aviot.engine.attention_rows import attention_rows
from aviot.engine.base import DecoderInput, Reducing
from aviot.methods.reduction import Entering, Kept, Reduced, Reduction, mix_groups

LAYER_KINDS = {"full_attention", "linear_attention"}


@contextmanager
def reduced_decoder(model: Any, inputs: DecoderInput, reducing: Reducing) -> Iterator[None]:
    """Reduce the visual tokens of one prompt while the block runs; `reducing` then has the record.

    Raises ValueError if the method cannot act inside this decoder.
    """
    decoder = model.get_decoder()
    state, owner = _State(inputs, reducing, start(model, inputs, reducing)), threading.get_ident()
    with ExitStack() as hooks:

        def hook(module: nn.Module, function: Callable[..., Any]) -> None:
            def own(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                if threading.get_ident() == owner:  # other threads may run the same model meanwhile
                    return function(args, kwargs)
                return None

            hooks.callback(module.register_forward_pre_hook(own, with_kwargs=True).remove)

        hook(decoder, state.begin)
        for layer in state.layers_of(decoder):
            hook(layer.module, layer.before)
            if _overrides(state.reduction, "within"):
                hook(layer.module.post_attention_layernorm, layer.within)
            if _overrides(state.reduction, "queries") and hasattr(layer.module, "self_attn"):
                hook(layer.module.self_attn, layer.note_attention)
        yield


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
    text = inputs.length - 1 - int(_positions(inputs)[-1])
    reduction = reducing.method.start(Entering(reducing.made, reducing.order, reducing.limit, attends, text))
    if _overrides(reduction, "within") and not all(hasattr(one, "post_attention_layernorm") for one in decoder.layers):
        raise ValueError(
            f"method {name!r} acts before the feed-forward part of a layer, which is not found in "
            f"{type(decoder.layers[0]).__name__}; choose a method that acts before layers"
        )
    return reduction


def _overrides(reduction: Reduction, name: str) -> bool:
    return getattr(type(reduction), name) is not getattr(Reduction, name)


def _positions(inputs: DecoderInput) -> Int[Tensor, "n"]:
    """Return the places of the visual tokens in the sequence of a single prompt."""
    ((first, count),) = inputs.visual
    (places,) = inputs.scattered or (torch.arange(first, first + count),)
    return places


class _State:
    """One prompt on its way through the layers: what is left of the sequence, and the steps that have been taken."""

    def __init__(self, inputs: DecoderInput, reducing: Reducing, reduction: Reduction) -> None:
        self.length, self.reducing, self.reduction = inputs.length, reducing, reduction
        self.places = _positions(inputs)
        self.steps: dict[tuple[str, int], Kept] | None = None  # of the prefill, once it is under way
        self.whole = self.first = False  # whether this pass reads the whole prompt, and whether it is the prefill
        self.attention: Tensor | None = None
        self.deeper: Sequence[Tensor] = ()
        self.index = torch.empty(0, dtype=torch.long)  # in the sequence, of what is left of it
        self.visual = self.index  # among what is left, of its visual tokens
        self.reduced = Reduced.nothing(0, self.index.device)
        self.entered: list[Tensor] = []  # the sequence that each layer so far has read

    def layers_of(self, decoder: Any) -> list["_Layer"]:
        """Return the state's hooks for each layer."""
        return [_Layer(self, number, module) for number, module in enumerate(decoder.layers)]

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Start a pass: the prefill, one decoded token, or prompt and answer again if there is no cache."""
        given: Any = next(
            one for one in (*args, kwargs.get("inputs_embeds"), kwargs.get("input_ids")) if one is not None
        )
        length, device = given.shape[1], given.device
        self.whole, self.first = length >= self.length, self.steps is None
        if (self.first and length != self.length) or (not self.whole and length != 1):
            raise ValueError(
                f"tokens are dropped inside the decoder in one prefill of {self.length} tokens, followed by one token "
                f"at a time, got a pass over {length}; turn chunked prefill and assisted decoding off"
            )
        if not self.whole:
            return args, kwargs
        if getattr(kwargs.get("past_key_values"), "is_compileable", False):
            raise ValueError(
                f"method {self.reducing.method.name!r} leaves layers with caches of different lengths, which a static "
                "cache cannot hold; generate with a DynamicCache"
            )
        if self.first:
            self.steps = {}
        assert self.steps is not None  # set by the first pass
        if length > self.length and any(step.cut for step in self.steps.values()):
            raise ValueError(
                f"method {self.reducing.method.name!r} removes tokens from the decoder's cache; generate with a cache"
            )
        self.index = torch.arange(length, device=device)
        self.visual = self.places.to(device)
        self.reduced = Reduced.nothing(len(self.places), device)
        self.attention, self.entered = None, []
        self.deeper = tuple(kwargs.get("deepstack_visual_embeds") or ())
        if self.deeper:  # the decoder would add them to tokens that may have left; `_Layer.before` does it instead
            kwargs |= {"deepstack_visual_embeds": None, "visual_pos_masks": None}
        return args, kwargs

    def step(self, at: tuple[str, int], hidden: Float[Tensor, "1 l d"]) -> Kept | None:
        """Return what stays at a point: the method's decision in the prefill, the same again in later passes."""
        assert self.steps is not None  # set by the first pass
        if not self.first:
            return self.steps.get(at)
        ask = getattr(self.reduction, at[0])
        attention = None if self.attention is None else self.attention[..., self.visual]
        kept = ask(at[1], hidden[0, self.visual], attention)
        if kept is not None:
            _check(self.reducing.method.name, kept, len(self.visual))
            self.steps[at] = kept
        return kept

    def take(self, kept: Kept, hidden: Float[Tensor, "1 l d"]) -> Float[Tensor, "1 m d"]:
        """Return what is left of hidden states, with merged values, and remember which tokens those are."""
        if kept.into is not None and kept.weights is not None:
            mixed = mix_groups(hidden[0, self.visual], kept.into, kept.weights, len(kept.index))
            hidden = hidden.clone()
            hidden[0, self.visual[kept.index]] = mixed.to(hidden.dtype)
        is_visual = torch.zeros(len(self.index), dtype=torch.bool, device=self.index.device)
        is_visual[self.visual] = True
        stays = ~is_visual
        stays[self.visual[kept.index]] = True
        local = stays.nonzero()[:, 0]
        self.index, self.visual = self.index[local], is_visual[local].nonzero()[:, 0]
        self.reduced = self.reduced.after(kept)
        self.attention = None  # its columns are those of more tokens
        return hidden[:, local]

    def cut(self, cache: Any) -> None:
        """Remove the tokens that have left from the caches of the layers so far; linear attention holds none."""
        for layer, entered in zip([] if cache is None else cache.layers, self.entered, strict=False):
            keys = getattr(layer, "keys", None)
            if not isinstance(keys, Tensor):
                continue
            if type(layer) is not DynamicLayer:
                raise ValueError(
                    f"method {self.reducing.method.name!r} removes tokens from the decoder's cache, which a "
                    f"{type(layer).__name__} cannot; generate with a DynamicCache"
                )
            stays = torch.isin(entered, self.index).nonzero()[:, 0].to(keys.device)
            layer.keys, layer.values = keys[..., stays, :], layer.values[..., stays, :]


class _Layer:
    """The hooks on one layer."""

    def __init__(self, state: _State, number: int, module: Any) -> None:
        self.state, self.number, self.module = state, number, module

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Shorten what the layer reads."""
        state = self.state
        if not state.whole:
            return args, kwargs | {"attention_mask": None}  # one new token sees all that its layer's cache holds
        hidden = args[0] if args else kwargs.pop("hidden_states")
        if self.number:
            hidden = self._with_deeper(hidden)
            kept = state.step(("before", self.number), hidden)
            if kept is not None:
                hidden = state.take(kept, hidden)
                if kept.cut:
                    state.cut(kwargs.get("past_key_values"))
        state.attention = None
        state.entered.append(state.index)
        if state.first:
            state.reducing.reduced = state.reduced
            state.reducing.counts.append(len(state.visual))
        return (hidden, *args[1:]), self._shortened(kwargs)

    def within(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Shorten what the feed-forward part reads, and with it the residual stream, which is the same tensor."""
        state = self.state
        if not state.whole:
            return
        (hidden,) = args
        kept = state.step(("within", self.number), hidden)
        if kept is not None:
            hidden.set_(state.take(kept, hidden))
            if state.first:
                state.reducing.reduced = state.reduced

    def note_attention(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compute the attention rows that the method needs of this layer, from the layer's own weights."""
        state = self.state
        queries = state.reduction.queries(self.number) if state.whole and state.first else 0
        if queries:
            hidden = args[0] if args else kwargs["hidden_states"]
            state.attention = attention_rows(self.module.self_attn, hidden, kwargs["position_embeddings"], queries)

    def _with_deeper(self, hidden: Float[Tensor, "1 l d"]) -> Float[Tensor, "1 l d"]:
        """Add what deepstack adds after the layer before; a merged token gets the same mixture of it."""
        state = self.state
        if self.number > len(state.deeper):
            return hidden
        values = state.deeper[self.number - 1].to(hidden)
        hidden = hidden.clone()
        hidden[0, state.visual] = hidden[0, state.visual] + state.reduced.mix(values)
        return hidden

    def _shortened(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return masks and positions of what is left.

        Position ids are left out: rotary embeddings are computed already, and flash attention would take gaps between
        them for borders of packed sequences.
        """
        index, mask = self.state.index, kwargs.get("attention_mask")
        cos, sin = kwargs["position_embeddings"]
        if len(index) == cos.shape[1]:
            return kwargs
        shorter: dict[str, Any] = {"position_embeddings": (cos[:, index], sin[:, index]), "position_ids": None}
        if isinstance(mask, Tensor):
            shorter["attention_mask"] = mask[..., index, :][..., index] if mask.ndim == 4 else mask[..., index]
        return kwargs | shorter


def _check(name: str, kept: Kept, count: int) -> None:
    """Raise ValueError unless what stays is ascending indices of the tokens there, and what is merged fits them."""
    index, merged = kept.index, (kept.into, kept.weights)
    if index.ndim != 1 or index.dtype != torch.int64 or not len(index) or len(index) > count:
        raise ValueError(
            f"method {name!r} must keep 1 to {count} visual tokens, got {index.dtype} {tuple(index.shape)}"
        )
    if not bool((index[1:] > index[:-1]).all()) or not 0 <= int(index[0]) <= int(index[-1]) < count:
        raise ValueError(f"method {name!r} must keep ascending indices below {count}")
    if any((part is None) != (merged[0] is None) or (part is not None and part.shape != (count,)) for part in merged):
        raise ValueError(f"method {name!r} must give a place and a weight for each of {count} tokens, or neither")
