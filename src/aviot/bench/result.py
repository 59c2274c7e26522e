"""What a run found: plain data for the table, the plot and JSON."""

from dataclasses import dataclass, field
from typing import Literal

from aviot import methods
from aviot.bench.check import Checked
from aviot.bench.timing import Measurement, Part

FIRST_TOKEN = ("encode", "decoder_input", "prefill")  # the parts that stand between pixels and the first token


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method at one ratio, frame count and batch size; times are those of the whole batch."""

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
    factor: float | None = None  # first token without compression over this one's
    videos_per_second: float | None = None

    @property
    def title(self) -> str:
        """For people."""
        return title_of(self.method) + ("" if self.ratio is None else f"\nratio {self.ratio:g}")


@dataclass(frozen=True, kw_only=True)
class Point:
    """The compressor alone at one point of one axis; the other three stay where the base is."""

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
        """Where on its axis the point is."""
        return {"T": self.frames, "K": self.supports, "S": self.patches, "D": self.dim}[self.axis]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Reading the frames of a video file."""

    frames: int
    source: str
    part: Part


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything one run measured, and what it ran on."""

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
    rows: tuple[Row, ...] = ()
    scaling: tuple[Point, ...] = ()
    notes: tuple[str, ...] = field(default=())


def title_of(method: str) -> str:
    """Return a method's name for people."""
    return methods.get(method).title or method


def total_ms(parts: dict[str, Part], names: tuple[str, ...]) -> float | None:
    """The sum of medians, if all of them were measured."""
    found = [parts.get(name) for name in names]
    medians = [part.median_ms for part in found if isinstance(part, Measurement)]
    return sum(medians) if len(medians) == len(names) else None
