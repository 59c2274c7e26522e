"""What is compared: every way to answer a question, and which of them belong to which experiment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from aviot.config import CompressorConfig
from aviot_lab.methods import CompressorName
from aviot_lab.reproduce.size import Size

Weights = Literal["model", "uniform", "segment-mean"]
Hears = Literal["matched", "rotated", "none"]
Sight = Literal["short", "long", "sampled"]
Part = Literal["short", "long"]  # of a run: each has its own videos

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


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to answer: whose weights, which compressor how far, and what it is told."""

    compressor: CompressorName = "aviot"
    ratio: float | None = None  # None: all frames
    switches: tuple[tuple[str, Any], ...] = ()  # of the compressor, where they are not the checkpoint's own
    weights: Weights = "model"
    hears: Hears = "matched"  # the question that the compressor is told; the decoder reads the right one
    sight: Sight = "short"  # which videos, and whether all of their frames

    @property
    def key(self) -> str:
        """A name for files."""
        said: list[str] = [self.compressor if self.ratio is not None else "uncompressed"]
        said += [] if self.ratio is None else [f"r{self.ratio:g}"]
        said += [f"{name}={value}" for name, value in self.switches]
        said += [] if self.weights == "model" else ["fine-tuned"]
        said += [] if self.hears == "matched" else [f"query={self.hears}"]
        return " ".join(said + ([] if self.sight == "short" else [self.sight]))

    def of(self, config: CompressorConfig) -> "Row":
        """The same row without switches that the checkpoint's config has as they are."""
        return replace(self, switches=tuple((n, v) for n, v in self.switches if getattr(config, n) != v))


def aviot(ratio: float, **switches: Any) -> Row:
    """AVIOT on short videos."""
    return Row(ratio=ratio, switches=tuple(sorted(switches.items())))


def baseline(name: Weights, ratio: float, *, tuned: bool) -> Row:
    """A baseline on the model's weights, or on those that were fine-tuned with it."""
    return Row(compressor=name, ratio=ratio, weights=name if tuned else "model")  # type: ignore[arg-type]


UNCOMPRESSED = Row(compressor="none")


SAMPLED = Row(compressor="none", sight="sampled")


def sampled(ratio: float) -> Row:
    """AVIOT on some frames of long videos."""
    return Row(ratio=ratio, sight="sampled")


def long(ratio: float) -> Row:
    """AVIOT on all frames of long videos."""
    return Row(ratio=ratio, sight="long")


def hearing_rows(size: Size) -> dict[Hears, Row]:
    """The compressor told the question, another one of the same video, or none."""
    return {
        "matched": aviot(size.ratio),
        "rotated": Row(ratio=size.ratio, hears="rotated"),
        "none": Row(ratio=size.ratio, hears="none"),
    }


def needed(size: Size, config: CompressorConfig, tuned: set[Weights]) -> tuple[Row, ...]:
    """Every row of every experiment once, as this checkpoint has it."""
    return tuple(dict.fromkeys(row.of(config) for row in _all(size, tuned)))


def rows_of(part: Part, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are answered about a part's videos; those of long videos see all frames or sampled ones."""
    return [row for row in rows if (row.sight == "short") == (part == "short")]


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
    yield from hearing_rows(size).values()
    yield SAMPLED
    yield from map(sampled, size.long_ratios)
    yield from map(long, (*size.curve, *size.long_ratios, size.level_ratio))
