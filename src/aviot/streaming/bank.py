"""The memory of a stream: a bank of supports in temporal order, which merge where that changes least.

A new frame is a support of its own. When the bank is full, one pair of neighbours makes room: the pair that is cheapest
to transport onto one support. Supports of masses m_a and m_b (frames behind each) with features a and b [S,D] become
their mean c = (m_a a + m_b b) / (m_a + m_b), and moving both onto it costs, per position,

    m_a |a - c|^2 + m_b |b - c|^2  =  m_a m_b / (m_a + m_b) |a - b|^2,

by which the squared distance in W_2 between the stream's frames and the bank grows. No question has to be known for it.
Two terms make resolution fall with age. The cost is divided by the pair's age in frames: where changes are equally
frequent, a support's length is then proportional to its age, however long the stream is. And supports also have a place
on an axis of log age: moving along it costs SPREAD times the bank's median |a - b|^2 per unit squared, so that a past
without changes, or one of noise alone, keeps some supports for every doubling of the age, too.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aviot.streaming.records import MAX_KNOTS, FrameRange

MIN_SUPPORTS = 4
RECENT_SHARE = 4  # by default a quarter of a bank is for the latest frames, kept whole
RECORD_BYTES = MAX_KNOTS * 3 * 8 + 64
SPREAD = 1.0  # docs/log.md, 2026-11-19, has other values
FEATURES = "features"  # the name of the features among a support's tensors; others are extras


@dataclass(frozen=True)
class BankView:
    """The supports of a bank at one moment, in temporal order: tensors [N,S,D] by name, and the frames behind each."""

    tensors: Mapping[str, Float[Tensor, "N S D"]]
    records: tuple[FrameRange, ...]

    @property
    def features(self) -> Float[Tensor, "N S D"]:
        """The supports' features, in float32."""
        return self.tensors[FEATURES]

    def __len__(self) -> int:
        return len(self.records)


class SupportBank:
    """At most `capacity` supports of a stream; the latest `recent` frames are kept as they came.

    Storage is allocated once, in float32, so that thousands of merges do not add up rounding errors of a shorter type.
    Safe to use from several threads.
    """

    def __init__(self, capacity: int, recent: int, like: Mapping[str, Float[Tensor, "T S D"]]) -> None:
        if capacity < MIN_SUPPORTS or not 1 <= recent <= capacity - 2:
            raise ValueError(
                f"a memory needs at least {MIN_SUPPORTS} supports, of which all but two may be recent frames; got "
                f"{capacity} supports and {recent} recent frames"
            )
        self.capacity, self.recent, self.merges = capacity, recent, 0
        self._lock = threading.Lock()
        with torch.inference_mode(False):
            self._stored = {
                name: torch.zeros((capacity, *tensor.shape[1:]), device=tensor.device) for name, tensor in like.items()
            }
        self._slots: list[int] = []
        self._free = list(range(capacity - 1, -1, -1))
        self._records: list[FrameRange] = []
        self._mass = np.zeros(capacity)
        self._last = np.zeros(capacity)  # ordinal of each support's last frame
        self._gap = np.zeros(capacity)  # mean squared distance of each support and the next

    @staticmethod
    def bytes_per_support(like: Mapping[str, Float[Tensor, "T S D"]]) -> int:
        """Return the bytes that one support takes: its tensors in float32 and the record of its frames."""
        return sum(4 * tensor[0].numel() for tensor in like.values()) + RECORD_BYTES

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """The bytes that the bank takes, however full it is."""
        return sum(tensor.nbytes for tensor in self._stored.values()) + self.capacity * RECORD_BYTES

    def add(self, tensors: Mapping[str, Float[Tensor, "T S D"]], records: Sequence[FrameRange]) -> None:
        """Add frames, the latest last, or supports that were saved; make room by merging."""
        with self._lock, torch.no_grad():
            fresh = {name: tensor.detach().float() for name, tensor in tensors.items()}
            between = _distances(fresh[FEATURES][:-1], fresh[FEATURES][1:])
            for place, record in enumerate(records):
                if len(self._slots) == self.capacity:
                    self._merge(self._cheapest())
                count = len(self._slots)
                slot = self._free.pop()
                for name, tensor in fresh.items():
                    self._stored[name][slot] = tensor[place]
                if place:
                    self._gap[count - 1] = between[place - 1]
                elif count:
                    previous = self._stored[FEATURES][self._slots[-1]]
                    self._gap[count - 1] = _distances(previous[None], fresh[FEATURES][:1])[0]
                self._slots.append(slot)
                self._records.append(record)
                self._mass[count], self._last[count] = record.count, record.last

    def view(self) -> BankView:
        """Return a copy of all supports as they are now."""
        with self._lock:
            order = torch.tensor(self._slots, dtype=torch.long)
            tensors = {name: tensor[order.to(tensor.device)] for name, tensor in self._stored.items()}
            return BankView(tensors, tuple(self._records))

    def _cheapest(self) -> int:
        """Return the place of the pair's first support that costs least to merge."""
        return int(self._costs().argmin())

    def _costs(self) -> NDArray[np.float64]:
        """Return what merging each support with the next one costs; the latest frames are spared."""
        count = len(self._slots)
        pairs = count - max(1, self.recent - 1) - 1  # the new frame is one of the recent ones
        mass, last = self._mass[: pairs + 1], self._last[: pairs + 1]
        now = self._last[count - 1] + 2
        moved = np.diff(np.log(now - last + (mass - 1) / 2))
        distance = self._gap[:pairs] + SPREAD * np.median(self._gap[: count - 1]) * moved**2
        return distance * mass[:-1] * mass[1:] / ((mass[:-1] + mass[1:]) * (now - last[1:]))

    def _merge(self, place: int) -> None:
        """Merge a support with the next one."""
        count = len(self._slots)
        into, gone = self._slots[place], self._slots.pop(place + 1)
        mass = self._mass[place] + self._mass[place + 1]
        share = float(self._mass[place + 1] / mass)
        for tensor in self._stored.values():
            tensor[into].lerp_(tensor[gone], share)
        self._free.append(gone)
        self._records[place] = self._records[place].joined(self._records.pop(place + 1))
        for values in (self._mass, self._last, self._gap):
            values[place : count - 1] = values[place + 1 : count]
        self._mass[place] = mass
        self._measure(place)
        self.merges += 1

    def _measure(self, place: int) -> None:
        """Measure a support's distances to its neighbours anew, in one step."""
        here = slice(max(0, place - 1), min(len(self._slots), place + 2))
        found = self._stored[FEATURES][torch.tensor(self._slots[here], device=self._stored[FEATURES].device)]
        self._gap[here.start : here.stop - 1] = _distances(found[:-1], found[1:])


def _distances(a: Float[Tensor, "n S D"], b: Float[Tensor, "n S D"]) -> list[float]:
    """Return squared distances per position, meaned over positions and channels; read from the device at once."""
    return (a - b).square().mean((1, 2)).tolist()
