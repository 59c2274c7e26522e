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
from aviot.engine.fitting import overrides, places_of, start
from aviot.methods.reduction import Kept, Reduced, Reduction, mix_groups


@contextmanager
def reduced_decoder(model: Any, inputs: DecoderInput, reducing: Reducing) -> Iterator[None]:
    """Reduce the visual tokens of one prompt while the block runs; `reducing` then has the record.

    Raises ValueError if the method cannot act inside this decoder.
    """
    decoder = model.get_decoder()
    state, owner = _State(inputs, reducing, start(model, inputs, reducing), decoder), threading.get_ident()
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
            if overrides(state.reduction, "within"):
                hook(layer.module.post_attention_layernorm, layer.within)
            reads = any(overrides(state.reduction, name) for name in ("queries", "looks"))
            if reads and hasattr(layer.module, "self_attn"):
                hook(layer.module.self_attn, layer.note_attention)
        yield


class _State:
    """One prompt on its way through the layers: what is left of the sequence, and the steps that have been taken."""

    def __init__(self, inputs: DecoderInput, reducing: Reducing, reduction: Reduction, decoder: Any) -> None:
        self.length, self.reducing, self.reduction = inputs.length, reducing, reduction
        self.layers = len(decoder.layers)
        self.chooses = overrides(reduction, "sees")
        self.places = places_of(inputs)
        self.steps: dict[tuple[str, int], Kept] | None = None  # of the prefill, once it is under way
        self.whole = self.first = False  # whether this pass reads the whole prompt, and whether it is the prefill
        self.attention: Tensor | None = None
        self.deeper: Sequence[Tensor] = ()
        self.index = torch.empty(0, dtype=torch.long)  # in the sequence, of what is left of it
        self.visual = self.index  # among what is left, of its visual tokens
        self.reduced = Reduced.nothing(0, self.index.device)
        self.entered: list[Tensor] = []  # the sequence that each layer so far has read, or still has in its cache
        self.hidden: Tensor | None = None  # the places in the sequence that the token decoded now does not see

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
        self.attention = self.hidden = None
        if not self.whole:
            self._check_cache(kwargs.get("past_key_values") is not None)
            return args, kwargs
        if getattr(kwargs.get("past_key_values"), "is_compileable", False):
            raise ValueError(
                f"method {self.reducing.method.name!r} leaves layers with caches of different lengths, which a static "
                "cache cannot hold; generate with a DynamicCache"
            )
        if self.first:
            self.steps = {}
        assert self.steps is not None  # set by the first pass
        self._check_cache(length == self.length or not (self.chooses or any(one.cut for one in self.steps.values())))
        self.index = torch.arange(length, device=device)
        self.visual = self.places.to(device)
        self.reduced = Reduced.nothing(len(self.places), device)
        self.entered = []
        self.deeper = tuple(kwargs.get("deepstack_visual_embeds") or ())
        if len(self.deeper) >= self.layers:
            raise ValueError(
                f"method {self.reducing.method.name!r} needs a layer after the last that deepstack adds features to, "
                f"and this decoder adds {len(self.deeper)} to {self.layers} layers; choose another method"
            )
        if self.deeper:  # the decoder would add them to tokens that may have left; `_Layer.before` does it instead
            kwargs |= {"deepstack_visual_embeds": None, "visual_pos_masks": None}
        return args, kwargs

    def _check_cache(self, fits: bool) -> None:
        """Raise ValueError for a pass without a cache that cannot repeat what the prefill did."""
        if not fits:
            raise ValueError(
                f"method {self.reducing.method.name!r} needs the decoder's cache for this prompt; generate with a cache"
            )

    def step(self, at: tuple[str, int], hidden: Float[Tensor, "1 l d"]) -> Kept | None:
        """Return what stays at a point: the method's decision in the prefill, the same again in later passes."""
        assert self.steps is not None  # set by the first pass
        if not self.first:
            return self.steps.get(at)
        ask = getattr(self.reduction, at[0])
        attention = None if self.attention is None else self.attention[..., self.visual]
        kept = ask(at[1], hidden[0, self.visual], attention)
        if kept is not None:
            kept.check(self.reducing.method.name, len(self.visual))
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
        for number, layer in enumerate([] if cache is None else cache.layers[: len(self.entered)]):
            keys = getattr(layer, "keys", None)
            if not isinstance(keys, Tensor):
                continue
            if type(layer) is not DynamicLayer:
                raise ValueError(
                    f"method {self.reducing.method.name!r} removes tokens from the decoder's cache, which a "
                    f"{type(layer).__name__} cannot; generate with a DynamicCache"
                )
            stays = torch.isin(self.entered[number], self.index).nonzero()[:, 0].to(keys.device)
            layer.keys, layer.values = keys[..., stays, :], layer.values[..., stays, :]
            self.entered[number] = self.entered[number][stays]

    def left_in(self, layer: int) -> Int[Tensor, "k"]:
        """Return the places in a layer's cache of the visual tokens that are left in the end."""
        return torch.isin(self.entered[layer], self.index[self.visual]).nonzero()[:, 0]


class _Layer:
    """The hooks on one layer."""

    def __init__(self, state: _State, number: int, module: Any) -> None:
        self.state, self.number, self.module = state, number, module

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Shorten what the layer reads."""
        state = self.state
        if not state.whole:
            return args, kwargs | {"attention_mask": self._seen(args, kwargs)}
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
        hidden, rotary = args[0] if args else kwargs["hidden_states"], kwargs["position_embeddings"]
        if not state.whole:
            if state.chooses and state.reduction.looks(self.number):
                past = kwargs["past_key_values"].layers[self.number].keys
                rows = attention_rows(self.module.self_attn, hidden, rotary, past=past)
                state.attention = rows[:, 0, state.left_in(self.number)]
        elif state.first and (queries := state.reduction.queries(self.number)):
            state.attention = attention_rows(self.module.self_attn, hidden, rotary, queries)

    def _seen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Return the mask of one decoded token: it sees all that its layer's cache holds, unless the method chooses."""
        state = self.state
        if not state.chooses:
            return None
        if state.attention is not None:
            seen, state.attention = state.reduction.sees(self.number, state.attention), None
            if seen is not None:
                left = state.index[state.visual]
                unseen = torch.ones(len(left), dtype=torch.bool, device=left.device)
                unseen[seen] = False
                state.hidden = left[unseen]
        if state.hidden is None:
            return None
        hidden_states, entered = args[0] if args else kwargs["hidden_states"], state.entered[self.number]
        held = kwargs["past_key_values"].layers[self.number].keys.shape[-2]
        mask = hidden_states.new_zeros((1, 1, 1, held + 1))
        columns = torch.isin(entered, state.hidden).nonzero()[:, 0]
        mask[..., columns.to(mask.device)] = torch.finfo(mask.dtype).min
        return mask

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
