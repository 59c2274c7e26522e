"""Rows of the report: every way to answer a question, and the rows of each experiment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from aviot.config import CompressorConfig
from aviot_lab.methods import CompressorName
from aviot_lab.reproduce.size import Size

Weights = Literal["model", "uniform", "segment-mean"]
Conditioning = Literal["matched", "rotated", "none"]
Video = Literal["short", "long", "sampled"]
Part = Literal["short", "long"]  # of a run, with its own videos

BASELINES: dict[Weights, str] = {"uniform": "Uniform Keep", "segment-mean": "Segment Mean"}

# The component ablation of the paper, at inference on one checkpoint: its titles, and the switches of CompressorConfig.
ABLATION: dict[str, dict[str, Any]] = {
    "Full AVIOT": {},
    "w/o question-conditioned transport cost": {"question_cost": False},
    "w/o question-conditioned temporal allocation": {"question_allocation": False},
    "w/o both conditioning paths": {"question_cost": False, "question_allocation": False},
    "Global transport only": {"granularities": "global"},
    "Multiple spatial granularities, equal fusion": {"fusion": "equal"},
}
PILOTS = ("balanced", "unbalanced")

# Switches that the paper does not have, at inference on one checkpoint: titles, and their values.
BEYOND: dict[str, tuple[str, str]] = {
    "Allocation as printed": ("allocation", "printed"),
    "Calibrated allocation": ("allocation", "calibrated"),
    "Cost as printed": ("cost_normalization", "printed"),
    "Normalised cost": ("cost_normalization", "unit"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to answer: weights, compressor, ratio, and the question that the compressor is conditioned on."""

    compressor: CompressorName = "aviot"
    ratio: float | None = None  # None: all frames
    switches: tuple[tuple[str, Any], ...] = ()  # of the compressor, where they differ from the checkpoint's
    weights: Weights = "model"
    conditioning: Conditioning = "matched"  # the compressor's question; the decoder always reads the right one
    video: Video = "short"  # "sampled": some frames of the long ones

    @property
    def key(self) -> str:
        """Name of the row in files."""
        parts: list[str] = [self.compressor if self.ratio is not None else "uncompressed"]
        parts += [] if self.ratio is None else [f"r{self.ratio:g}"]
        parts += [f"{name}={value}" for name, value in self.switches]
        parts += [] if self.weights == "model" else ["fine-tuned"]
        parts += [] if self.conditioning == "matched" else [f"query={self.conditioning}"]
        return " ".join(parts + ([] if self.video == "short" else [self.video]))

    def of(self, config: CompressorConfig) -> "Row":
        """Return the same row without switches that are the config's own."""
        return replace(self, switches=tuple((n, v) for n, v in self.switches if config.switch(n) != v))


def aviot(ratio: float, **switches: Any) -> Row:
    """Return the row of AVIOT on short videos."""
    return Row(ratio=ratio, switches=tuple(sorted(switches.items())))


def baseline(name: Weights, ratio: float, *, tuned: bool) -> Row:
    """Return the row of a baseline on the model's weights, or on weights that were fine-tuned with it."""
    return Row(compressor=name, ratio=ratio, weights=name if tuned else "model")  # type: ignore[arg-type]


UNCOMPRESSED = Row(compressor="none")
SAMPLED = Row(compressor="none", video="sampled")


def sampled(ratio: float) -> Row:
    """Return the row of AVIOT on sampled frames of long videos."""
    return Row(ratio=ratio, video="sampled")


def long(ratio: float) -> Row:
    """Return the row of AVIOT on all frames of long videos."""
    return Row(ratio=ratio, video="long")


def conditioning_rows(size: Size) -> dict[Conditioning, Row]:
    """Return the rows whose compressor is conditioned on the question, on another of the same video, or on none."""
    return {
        "matched": aviot(size.ratio),
        "rotated": Row(ratio=size.ratio, conditioning="rotated"),
        "none": Row(ratio=size.ratio, conditioning="none"),
    }


def required_rows(size: Size, config: CompressorConfig, tuned: set[Weights]) -> tuple[Row, ...]:
    """Return every row of every experiment once, without the checkpoint's own switches."""
    others = (aviot(ratio, **switches) for ratio in size.ablation_ratios for switches in beyond(config).values())
    return tuple(dict.fromkeys(row.of(config) for row in (*_all(size, tuned), *others)))


def beyond(config: CompressorConfig) -> dict[str, dict[str, str]]:
    """Return the switches beyond the paper that a checkpoint can answer with, by title.

    A calibrated allocation needs a threshold, which belongs to the weights.
    """
    known = config.allocation.evidence_threshold is not None
    return {title: {name: value} for title, (name, value) in BEYOND.items() if value != "calibrated" or known}


def rows_of(part: Part, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are answered about a part's videos; those of long videos see all frames or sampled ones."""
    return [row for row in rows if (row.video == "short") == (part == "short")]


def _all(size: Size, tuned: set[Weights]) -> Iterator[Row]:
    yield UNCOMPRESSED
    for ratio in size.ratios:
        yield aviot(ratio)
        for name in BASELINES:
            yield baseline(name, ratio, tuned=False)
            if name in tuned:
                yield baseline(name, ratio, tuned=True)
    for ratio in size.ablation_ratios:
        yield from (aviot(ratio, **switches) for switches in ABLATION.values())
        yield from (aviot(ratio, pilot=pilot) for pilot in PILOTS)
    yield from map(aviot, size.curve)
    yield from conditioning_rows(size).values()
    yield SAMPLED
    yield from map(sampled, size.long_ratios)
    yield from map(long, (*size.curve, *size.long_ratios, size.level_ratio))
