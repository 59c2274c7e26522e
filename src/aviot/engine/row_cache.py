"""A decoder's cache for a batch whose rows come, go and grow on their own."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

STEP = 256
"""Columns by which the cache grows, so that it is not copied at every token."""


class RowLayer(CacheLayerMixin):
    """Keys and values of one layer, [rows, heads, columns, size]; each row is filled from the left on its own."""

    is_sliding = False
    keys: Tensor | None
    values: Tensor | None

    def __init__(self, cache: "RowCache") -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: `RowCache.join` makes room."""

    def update(
        self, key_states: Float[Tensor, "n h 1 s"], value_states: Float[Tensor, "n h 1 s"], *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one token at the end of each row, and return all rows."""
        device = key_states.device  # a model may be spread over several
        rows, columns = self.cache.rows.to(device), self.cache.columns.to(device)
        assert self.keys is not None
        assert self.values is not None
        self.keys[rows, :, columns] = key_states[:, :, 0]
        self.values[rows, :, columns] = value_states[:, :, 0]
        count, span = len(rows), self.cache.span
        return self.keys[:count, :, :span], self.values[:count, :, :span]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the columns that are read, and the first of them."""
        return self.cache.span, 0

    def get_seq_length(self) -> int:
        """Return the columns before the token that is decoded."""
        return self.cache.span - 1

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def join(self, row: int, prompt: Any, room: tuple[int, int]) -> None:
        """Put a prompt's keys and values into a row; `room` is the number of rows and columns that there must be."""
        self.keys = _placed(self.keys, row, prompt.keys[0], room)
        self.values = _placed(self.values, row, prompt.values[0], room)

    def widen(self, room: tuple[int, int]) -> None:
        """Make room for more columns."""
        assert self.keys is not None
        assert self.values is not None
        self.keys, self.values = _grown(self.keys, room), _grown(self.values, room)

    def move(self, source: int, target: int) -> None:
        """Copy a row over another."""
        for tensor in (self.keys, self.values):
            assert tensor is not None
            tensor[target] = tensor[source]

    def clear(self) -> None:
        """Free the memory."""
        self.keys = self.values = None


class RowCache(Cache):
    """The cache of a batch; its first `len(lengths)` rows are in use. `lengths` are the numbers of tokens in each."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(layers=[])
        self.device = device
        self.layers: list[RowLayer] = []
        self.lengths: list[int] = []
        self._room = (0, 0)
        self.rows = self.columns = torch.empty(0, dtype=torch.long)
        self.span = 0

    def join(self, layers: Sequence[Any]) -> None:
        """Add a row with the caches of a prompt that was prefilled alone, [1, heads, length, size] each."""
        length = layers[0].keys.shape[-2]
        row = len(self.lengths)
        needed = -(-(max((length, *self.lengths)) + 1) // STEP) * STEP
        columns = needed if not row or self._room[1] > 2 * needed else max(self._room[1], needed)
        room = (max(self._room[0] if row else 0, row + 1), columns)
        while len(self.layers) < len(layers):
            self.layers.append(RowLayer(self))
        self._room = (self._room[0], min(self._room[1], columns))  # that all layers have, should one of them fail
        for mine, other in zip(self.layers, layers, strict=True):
            mine.join(row, other, room)
        self._room = room
        self.lengths.append(length)

    def leave(self, row: int) -> None:
        """Remove a row; the last one takes its place."""
        last = len(self.lengths) - 1
        if not last:
            self.clear()
            return
        if row != last:
            for layer in self.layers:
                layer.move(last, row)
            self.lengths[row] = self.lengths[last]
        self.lengths.pop()

    def clear(self) -> None:
        """Remove all rows and free the memory."""
        self.lengths.clear()
        self._room = (0, 0)
        for layer in self.layers:
            layer.clear()

    def begin(self) -> Float[Tensor, "n 1 1 span"]:
        """Prepare for one more token in every row; return the attention mask to add, in the keys' type."""
        assert self.layers[0].keys is not None  # a row has joined
        dtype = self.layers[0].keys.dtype
        self.span = max(self.lengths) + 1
        if self.span > self._room[1]:
            self._room = (self._room[0], self.span + STEP)
            for layer in self.layers:
                layer.widen(self._room)
        self.rows = torch.arange(len(self.lengths), device=self.device)
        self.columns = torch.tensor(self.lengths, device=self.device)
        unread = torch.arange(self.span, device=self.device) > self.columns[:, None]
        mask = torch.zeros(unread.shape, dtype=dtype, device=self.device)
        return mask.masked_fill_(unread, torch.finfo(dtype).min)[:, None, None]

    def end(self) -> None:
        """Count the tokens that every layer has written."""
        self.lengths = [length + 1 for length in self.lengths]


def _placed(held: Tensor | None, row: int, new: Float[Tensor, "h l s"], room: tuple[int, int]) -> Tensor:
    if held is None or held.shape[0] < room[0] or held.shape[2] != room[1]:
        held = _grown(new.new_empty((0, *new.shape)) if held is None else held, room, row)
    held[row, :, : new.shape[1]] = new
    held[row, :, new.shape[1] :] = 0  # what another row left there may be NaN, and zero times NaN is NaN
    return held


def _grown(held: Tensor, room: tuple[int, int], rows: int | None = None) -> Tensor:
    """Return the first rows in a tensor with room for more; rows grow to the next power of two."""
    count = held.shape[0] if rows is None else rows
    size = max(held.shape[0] if rows is None else 0, 1 << (room[0] - 1).bit_length())
    larger = held.new_zeros((size, held.shape[1], room[1], held.shape[3]))
    columns = min(held.shape[2], room[1])
    larger[:count, :, :columns] = held[:count, :, :columns]
    return larger
