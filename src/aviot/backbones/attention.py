"""Attention that tokens receive in an encoder's layers, computed when a method first needs it.

Encoders run with attention kernels that do not return weights. So the encoder is run once more, and a hook takes the
input of each layer that a method needs; the weights are softmax(Q K^T / sqrt(h)) of that layer's own projections, in
float32, over the tokens that the layer itself attends to: a frame, or a window of it.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

SCORES_AT_ONCE = 2**26  # attention weights that are in memory at a time: 256 MiB in float32
SHALLOW = 1 / 5  # of the depth: layer 5 of SigLIP's 26, as AOT takes it


@dataclass(frozen=True)
class EncoderAttention:
    """The attention modules of an encoder's layers in use, in order, and how values of patches become those of tokens.

    `run` runs the encoder on one video. `to_tokens` takes values of the patches in the order that the modules read
    them, with class tokens, and returns them on the grid of projected tokens before any pooling. `pooling` has the
    weight of each of those in every pooled cell.
    """

    modules: Sequence[nn.Module]
    run: Callable[[], object]
    frames: int
    to_tokens: Callable[[Float[Tensor, "n c"]], Float[Tensor, "T P c"]]
    pooling: Float[Tensor, "rows columns P"]

    @property
    def layers(self) -> dict[str, nn.Module]:
        """The module behind each extra; a depth of one has the same layer for all."""
        depth = len(self.modules)
        last, shallow = self.modules[-1], self.modules[min(round(depth * SHALLOW), depth - 1)]
        deep = self.modules[max(depth - 2, 0)]
        return {"attention": last, "attention_keys": last, "attention_shallow": shallow, "attention_deep": deep}

    def extras(self, names: Collection[str]) -> dict[str, Tensor]:
        """Run the encoder and return these of the extras that it supplies, by name; see `VideoFeatures`."""
        wanted = {name: module for name, module in self.layers.items() if name in names}
        if not wanted:
            return {}
        records = recorded(set(wanted.values()), self.run, keys="attention_keys" in wanted)
        return {name: self._extra(name, records[module]) for name, module in wanted.items()}

    def _extra(self, name: str, record: "LayerRecord") -> Tensor:
        if name == "attention_keys":
            return self._pooled(self.to_tokens(record.keys))
        received = self.to_tokens(record.received[:, None])
        if name != "attention":
            return received[..., 0]
        queries = len(record.received) // self.frames
        return self._pooled(received / queries)[..., 0]

    def _pooled(self, values: Float[Tensor, "T P c"]) -> Float[Tensor, "T S c"]:
        return torch.einsum("sp,tpc->tsc", self.pooling.flatten(0, 1).to(values), values)


EXTRAS = frozenset({"attention", "attention_keys", "attention_shallow", "attention_deep"})
"""The names of extras that `EncoderAttention` supplies."""


@dataclass(frozen=True)
class LayerRecord:
    """One layer's attention: what each token received, summed over queries and averaged over heads, and its keys.

    Keys are those before rotary embeddings, averaged over heads; there are none unless asked for.
    """

    received: Float[Tensor, "n"]
    keys: Float[Tensor, "n h"]


@torch.inference_mode()
def recorded(modules: Collection[nn.Module], run: Callable[[], object], *, keys: bool) -> dict[nn.Module, LayerRecord]:
    """Run an encoder and return the attention of these modules; calls on parts of a video follow each other.

    Calls in other threads, in which a server encodes another video, are not recorded.
    """
    thread = threading.get_ident()
    parts: dict[nn.Module, list[LayerRecord]] = {module: [] for module in modules}

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == thread:
            parts[module].append(_record(module, *args, keys=keys, **kwargs))

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        run()
    return {
        module: LayerRecord(torch.cat([one.received for one in some]), torch.cat([one.keys for one in some]))
        for module, some in parts.items()
    }


def _record(
    module: nn.Module,
    hidden_states: Float[Tensor, "*B L d"],
    *_: object,
    keys: bool,
    cu_seqlens: Int[Tensor, "s+1"] | None = None,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **__: object,
) -> LayerRecord:
    """Return one call's attention, from the arguments of the module; tokens of a batch follow each other."""
    query, key = (part.flatten(0, -3) for part in queries_and_keys(module, hidden_states))  # [n,heads,h]
    mean = key.float().mean(1) if keys else key.new_zeros(len(key), 0, dtype=torch.float32)
    if position_embeddings is not None:
        query, key = (rotated(part, *position_embeddings) for part in (query, key))
    if cu_seqlens is None:
        lengths = torch.full((hidden_states.shape[:-1].numel() // hidden_states.shape[-2],), hidden_states.shape[-2])
    else:
        lengths = cu_seqlens.diff().cpu()
    return LayerRecord(received(query, key, lengths), mean)


def queries_and_keys(module: nn.Module, hidden: Float[Tensor, "*B d"]) -> tuple[Tensor, Tensor]:
    """Return a module's queries and keys [*B,heads,h], from one projection or two, and its norms of them if any."""
    own: Any = module
    if hasattr(own, "qkv"):
        query, key, _ = own.qkv(hidden).unflatten(-1, (3, own.num_heads, -1)).unbind(-3)
        return query, key
    query, key = own.q_proj(hidden), own.k_proj(hidden)
    norms = getattr(own, "q_norm", None), getattr(own, "k_norm", None)
    query, key = (part if norm is None else norm(part) for part, norm in zip((query, key), norms, strict=True))
    return query.unflatten(-1, (own.num_heads, -1)), key.unflatten(-1, (own.num_heads, -1))


def rotated(
    values: Float[Tensor, "n heads h"], cosine: Float[Tensor, "n h"], sine: Float[Tensor, "n h"]
) -> Float[Tensor, "n heads h"]:
    """Return queries or keys with rotary embeddings, in float32 and rounded to their own type as encoders do."""
    wide = values.float()
    first, second = wide.chunk(2, -1)
    turned = torch.cat((-second, first), -1)
    return (wide * cosine.float()[:, None] + turned * sine.float()[:, None]).to(values.dtype)


def received(
    query: Float[Tensor, "n heads h"], key: Float[Tensor, "n heads h"], lengths: Int[Tensor, "s"]
) -> Float[Tensor, "n"]:
    """Return the attention that each token receives in its segment: summed over queries, averaged over heads.

    Segments are runs of consecutive tokens with these lengths; those of one length are computed together.
    """
    count, heads, width = query.shape
    sums = torch.zeros(count, device=query.device)
    for index in _segments(lengths, heads):
        at = index.to(query.device)
        own_query, own_key = (part[at].transpose(1, 2).float() for part in (query, key))  # [segments,heads,L,h]
        weights = torch.softmax(own_query @ own_key.mT * width**-0.5, -1)
        sums[at] = weights.sum(-2).mean(1)
    return sums


def _segments(lengths: Int[Tensor, "s"], heads: int) -> Iterator[Int[Tensor, "k L"]]:
    """Yield the indices of tokens of equally long segments, as many at a time as memory allows."""
    ends = lengths.cumsum(0)
    for length in filter(None, lengths.unique().tolist()):
        starts = (ends - length)[lengths == length]
        for some in starts.split(max(1, SCORES_AT_ONCE // (heads * length * length))):
            yield some[:, None] + torch.arange(length)


def attention_modules(tower: nn.Module) -> list[nn.Module]:
    """Return the attention modules of an encoder, layer by layer."""
    found = [module for module in tower.modules() if isinstance(getattr(module, "num_heads", None), int)]
    return [module for module in found if hasattr(module, "qkv") or hasattr(module, "q_proj")]


def in_use(modules: Sequence[nn.Module], layer: int | Sequence[int]) -> Sequence[nn.Module]:
    """Return the layers up to the one whose output is taken; 0 is the input of the first, -1 the output of the last."""
    each = [layer] if isinstance(layer, int) else layer
    return modules[: max(one % (len(modules) + 1) for one in each)]


def unpooled(rows: int, columns: int) -> Float[Tensor, "rows columns P"]:
    """Return the pooling of a family that does not pool: every cell is its own token."""
    return torch.eye(rows * columns).unflatten(0, (rows, columns))


def mean_of_blocks(values: Float[Tensor, "n c"], frames: int, size: int) -> Float[Tensor, "T P c"]:
    """Return the mean of each token's patches, `size` of them that follow each other."""
    return values.unflatten(0, (frames, -1, size)).mean(2)


def mean_of_squares(
    values: Float[Tensor, "n c"], frames: int, side: int, *, skipped: int = 0
) -> Float[Tensor, "T P c"]:
    """Return the mean of each token's side x side patches of a square frame in raster order, after `skipped` others."""
    patches = values.unflatten(0, (frames, -1))[:, skipped:]
    rows = round(patches.shape[1] ** 0.5) // side
    return patches.unflatten(1, (rows, side, rows, side)).mean((2, 4)).flatten(1, 2)


def pooling_of(
    pool: Callable[[Float[Tensor, "1 P P"]], Float[Tensor, "1 S P"]], patches: int, grid: tuple[int, int]
) -> Float[Tensor, "rows columns P"]:
    """Return the weights of a linear pooling of a frame's tokens, from its result on unit vectors."""
    return pool(torch.eye(patches)[None])[0].unflatten(0, grid)


def cached(
    cache: dict[str, Tensor], names: Collection[str], supply: Callable[[Collection[str]], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Return tensors by name, of which those that are not in the cache yet are supplied and added to it."""
    if missing := [name for name in names if name not in cache]:
        cache.update(supply(missing))
    return {name: cache[name] for name in names if name in cache}
