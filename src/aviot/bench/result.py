"""The results of a run, and notes that explain compressions that save no time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from aviot import methods
from aviot.bench.check import Checked
from aviot.bench.sizes import SIZES
from aviot.bench.timing import Measurement, Part

OWN = ("compress", "replay", "inside")  # the parts of a method by itself
FIRST_TOKEN = ("encode", "decoder_input", "prefill")  # the parts from pixels to the first token
CHANGING = FIRST_TOKEN[1:]  # encoding takes the same time with and without compression


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """One method at one ratio, frame count and batch size; times are of the whole batch."""

    method: str
    frames: int
    batch: int
    ratio: float | None  # None: uncompressed
    supports: int
    tokens: int | None  # visual tokens per video; None without a decoder
    path: tuple[int, ...]
    parts: dict[str, Part]
    bandwidth_share: float | None = None
    first_token_ms: float | None = None
    factor: float | None = None  # time to the first token without compression over this one
    videos_per_second: float | None = None
    refusal: str = ""  # the sentence of a method that does not serve the setting

    @property
    def title(self) -> str:
        """Heading in tables and plots."""
        return title_of(self.method) + ("" if self.ratio is None else f"\nratio {self.ratio:g}")


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """The compressor alone at one point of one axis; the other three sizes stay at their base values."""

    axis: Literal["T", "K", "S", "D"]
    frames: int
    supports: int
    patches: int
    dim: int
    path: tuple[int, ...]
    parts: dict[str, Part]
    bandwidth_share: float | None

    @property
    def value(self) -> int:
        """The point's size along its axis."""
        return {"T": self.frames, "K": self.supports, "S": self.patches, "D": self.dim}[self.axis]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The time to read frames of a video file."""

    frames: int
    source: str
    part: Part


@dataclass(frozen=True, kw_only=True)
class SpeedOfLight:
    """The work of the way to the first token, and how fast the machine is at each kind of it.

    Operations are products, convolutions and attention, their rate that of a large product. The weights are read at
    least once, at the rate of a large copy. Caches and features are not counted, so this is a lower bound.
    """

    operations: dict[str, int]
    operations_per_second: float
    weight_bytes: int
    bytes_per_second: float

    @property
    def milliseconds(self) -> dict[str, float]:
        """The least time of each kind of work."""
        times = {name: 1000 * count / self.operations_per_second for name, count in self.operations.items()}
        return times | {"read the weights": 1000 * self.weight_bytes / self.bytes_per_second}


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """From a file to the first token: times of the whole and of its halves alone, and what ran when.

    Parts are "overlapped", as a session does it, "in turn", "decode" alone and the "model" alone: encoder, compression
    and prefill of a video that was read before. Spans are name, start and end in milliseconds of one overlapped run.
    `limit_ms` is the larger half: no order of the same work is faster.
    """

    source: str
    frames: int
    pictures: int  # in the file
    method: str
    ratio: float
    parts: dict[str, Measurement]
    spans: tuple[tuple[str, float, float], ...]
    limit_ms: float
    light: SpeedOfLight


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measurements of one run, and the machine and versions that it ran on."""

    model: str
    dtype: str
    machine: dict[str, object]
    versions: dict[str, str]
    commit: str | None
    command: str
    seed: int
    warmup: int
    repeats: int
    bandwidth_gb_per_s: float
    checks: tuple[Checked, ...]
    decoding: tuple[Decoding, ...] = ()
    rows: tuple[MethodResult, ...] = ()
    scaling: tuple[ScalingPoint, ...] = ()
    timeline: Timeline | None = None
    notes: tuple[str, ...] = field(default=())


def title_of(method: str) -> str:
    """Return a method's display name."""
    return methods.get(method).title or method


def total_ms(parts: dict[str, Part], names: tuple[str, ...]) -> float | None:
    """Return the sum of medians, or None unless all parts were measured."""
    found = [parts.get(name) for name in names]
    medians = [part.median_ms for part in found if isinstance(part, Measurement)]
    return sum(medians) if len(medians) == len(names) else None


def explain_slowdowns(rows: Sequence[MethodResult], *, size: str | None, device: str) -> tuple[str, ...]:
    """Return a note for each row that is slower than no compression, and one with what to run instead.

    `size` is the size of random weights; None stands for a checkpoint. Tiny random weights on a CPU always get a note,
    because their times say little about a real model.
    """
    slower = [
        _slowdown(row, whole)
        for _, group in groupby(rows, key=lambda row: (row.frames, row.batch))
        for whole, *others in [list(group)]
        for row in others
        if row.factor is not None and row.factor < 1
    ]
    toy = size == "tiny" and device == "cpu" and any(row.factor is not None for row in rows)
    if not slower and not toy:
        return ()
    return (*slower, " ".join(_advice(size, device, toy=toy)))


def _slowdown(row: MethodResult, whole: MethodResult) -> str:
    """Return where a row loses time against the uncompressed one: before the decoder or in the prefill."""
    parts = {name: (_median(row, name), _median(whole, name)) for name in CHANGING}
    added = parts["decoder_input"][0] - parts["decoder_input"][1]
    saved = parts["prefill"][1] - parts["prefill"][0]
    compress = row.parts.get("compress")
    alone = f" (compressing alone takes {_ms(compress.median_ms)})" if isinstance(compress, Measurement) else ""
    before = f"it {'adds' if added > 0 else 'saves'} {_ms(abs(added))} before the decoder{alone}"
    prefill = f"saves {_ms(saved)} of the prefill's" if saved > 0 else f"adds {_ms(-saved)} to the prefill's"
    text = (
        f"{row.frames} frames, batch {row.batch}, {title_of(row.method)} at ratio {row.ratio:g}: the first token "
        f"comes {row.factor:.2f} times as fast as without compression, because {before} and {prefill} "
        f"{_ms(parts['prefill'][1])}."
    )
    spread = sum(_spread(each, name) for each in (row, whole) for name in CHANGING)
    if added - saved < spread:
        return f"{text} The difference of {_ms(added - saved)} is within the spread of the timed runs."
    if added > parts["prefill"][1]:
        return f"{text} Even the whole prefill takes less than compression adds, so no ratio could pay off here."
    return text


def _advice(size: str | None, device: str, *, toy: bool) -> Iterator[str]:
    """Yield what the times are worth and what to measure instead."""
    if toy:
        yield "Tiny random weights on a CPU show that everything runs, not what compression saves in a real model."
    names = list(SIZES)
    larger = [] if size not in names else [f"size {name}" for name in names[names.index(size) + 1 :]]
    instead = [
        *larger,
        *([] if size is None else ["a checkpoint"]),
        *(["a GPU"] if device == "cpu" else []),
    ]
    if instead:
        yield f"Compression pays where the prefill it saves is expensive: measure with {_listed(instead)}."
    else:
        yield "Prefill grows with the square of its tokens: measure more frames."


def _ms(value: float) -> str:
    """Return milliseconds as text, with decimals below 100."""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2f} ms"


def _median(row: MethodResult, name: str) -> float:
    part = row.parts[name]
    if not isinstance(part, Measurement):
        raise TypeError(f"{name} was not measured, so the row has no factor")
    return part.median_ms


def _spread(row: MethodResult, name: str) -> float:
    part = row.parts[name]
    return part.spread_ms if isinstance(part, Measurement) else 0.0


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
