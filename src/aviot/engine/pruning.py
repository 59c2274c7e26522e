"""Visual tokens dropped inside a decoder, by hooks on its layers: one mechanism for every method of that kind.

Before the method's layer the tokens that stay are selected; from there on hidden states, positions, masks and caches
hold those alone. Tokens keep the positions that they had, and so do the tokens that are decoded after them.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.engine.base import DecoderInput, Pruning


@contextmanager
def pruned_decoder(model: Any, inputs: DecoderInput, pruning: Pruning) -> Iterator[None]:
    """Drop visual tokens of one prompt while the block runs; `pruning.kept` then has those that stayed."""
    layers = model.get_decoder().layers
    method = pruning.method
    if len(inputs.visual) != 1:
        raise ValueError(f"tokens are dropped inside the decoder for one prompt at a time, got {len(inputs.visual)}")
    if not 0 < method.layer < len(layers):
        raise ValueError(
            f"method {method.name!r} drops tokens before layer {method.layer}, and this decoder has {len(layers)}; "
            f"choose a layer from 1 to {len(layers) - 1}"
        )
    state, owner = _State(inputs, pruning), threading.get_ident()
    with ExitStack() as hooks:

        def hook(module: nn.Module, function: Callable[..., Any]) -> None:
            def own(*given: Any) -> Any:  # other threads may run the same model meanwhile
                return function(*given) if threading.get_ident() == owner else None

            hooks.callback(module.register_forward_pre_hook(own, with_kwargs=True).remove)

        if method.needs_attention:
            hook(layers[method.layer - 1].self_attn, state.note_attention)
        for layer in layers[method.layer :]:
            hook(layer, state.shorten)
        yield


@dataclass
class _State:
    """The selection of one prompt: made once, before the method's layer, and applied to all layers after it."""

    inputs: DecoderInput
    pruning: Pruning
    attention: Float[Tensor, "heads L"] | None = None
    index: Int[Tensor, "l"] | None = field(default=None)  # of the sequence's tokens that stay

    def note_attention(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Work out the last prompt token's attention in the layer before, from that layer's own weights."""
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        if self.index is None and hidden.shape[1] == self.inputs.length:
            self.attention = last_row_attention(module, hidden, *kwargs["position_embeddings"])

    def shorten(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Leave out the dropped tokens from what a layer reads, in the prefill and in every step after it."""
        hidden = args[0]
        whole = self.inputs.length
        if hidden.shape[1] == whole and self.index is None:
            self.index = self._select(hidden)
            hidden = hidden[:, self.index]
        assert self.index is not None  # selected by the first of these layers
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor):
            kwargs["attention_mask"] = self._shorter_mask(mask, hidden.shape[1])
        if hidden.shape[1] == len(self.index) != whole:
            kwargs["position_embeddings"] = tuple(part[:, self.index] for part in kwargs["position_embeddings"])
            positions = kwargs.get("position_ids")
            if positions is not None:
                kwargs["position_ids"] = positions[..., self.index]
        return (hidden, *args[1:]), kwargs

    def _select(self, hidden: Float[Tensor, "1 L d"]) -> Int[Tensor, "l"]:
        ((start, count),) = self.inputs.visual
        (wanted,) = self.pruning.counts
        (visual,) = self.inputs.scattered or (torch.arange(start, start + count),)
        visual = visual.to(hidden.device)
        attention = None if self.attention is None else self.attention[:, visual]
        kept = self.pruning.method.select(hidden[0, visual], attention, min(wanted, count)).to(hidden.device)
        _check_selection(self.pruning.method.name, kept, min(wanted, count), count)
        self.pruning.kept.append(kept)
        stays = torch.ones(hidden.shape[1], dtype=torch.bool, device=hidden.device)
        stays[visual] = False
        stays[visual[kept]] = True
        return stays.nonzero()[:, 0]

    def _shorter_mask(self, mask: Tensor, queries: int) -> Tensor:
        assert self.index is not None
        decoded = torch.arange(self.inputs.length, mask.shape[-1], device=mask.device)
        keys = torch.cat((self.index, decoded))
        shorter = mask[..., keys]
        return shorter if mask.shape[-2] == queries else shorter[..., self.index, :]


def _check_selection(name: str, kept: Tensor, most: int, count: int) -> None:
    """Raise ValueError unless indices are whole numbers below `count`, ascending, and at most `most`."""
    is_index = kept.ndim == 1 and kept.dtype in (torch.int64, torch.int32)
    in_order = is_index and bool((kept[1:] > kept[:-1]).all())
    if not in_order or not 1 <= len(kept) <= most or not 0 <= int(kept[0]) <= int(kept[-1]) < count:
        raise ValueError(
            f"method {name!r} must select 1 to {most} ascending indices of {count} visual tokens, got {kept.dtype} "
            f"{tuple(kept.shape)}"
        )


def last_row_attention(
    module: nn.Module, hidden: Float[Tensor, "1 L d"], cos: Float[Tensor, "1 L h"], sin: Float[Tensor, "1 L h"]
) -> Float[Tensor, "heads L"]:
    """Return a self-attention's weights of the last token over all tokens, in float32."""
    attention: Any = module
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb

    def heads(projection: nn.Module, norm: str, states: Tensor, at: slice) -> Tensor:
        parts = projection(states).unflatten(-1, (-1, attention.head_dim))
        if hasattr(attention, norm):
            parts = getattr(attention, norm)(parts)
        parts = parts.transpose(1, 2)
        return rotate(parts, parts, cos[:, at], sin[:, at])[0]

    query = heads(attention.q_proj, "q_norm", hidden[:, -1:], slice(-1, None))
    key = heads(attention.k_proj, "k_norm", hidden, slice(None))
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = (query.float() @ key.float().mT)[0, :, 0] * attention.scaling
    return scores.softmax(-1)
