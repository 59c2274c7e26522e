"""Figures of every experiment, from the answers."""

from collections.abc import Iterator, Sequence
from typing import Any

from aviot.config import TRAINING_RATIOS, CompressorConfig
from aviot.methods.aviot.schedule import support_count
from aviot_lab.reproduce.evaluator import Record
from aviot_lab.reproduce.rows import (
    ABLATION,
    BASELINES,
    BEYOND,
    PILOTS,
    SAMPLED,
    UNCOMPRESSED,
    Row,
    Weights,
    aviot,
    baseline,
    beyond,
    conditioning_rows,
    long,
    sampled,
)
from aviot_lab.reproduce.separation import DISTANCES
from aviot_lab.reproduce.size import Size
from aviot_lab.reproduce.statistics import Answered, Figures, mean_with_interval, usages

TRAINED_TO = max(TRAINING_RATIOS)


class Summary:
    """Figures of a run, as plain data per experiment."""

    def __init__(
        self,
        size: Size,
        config: CompressorConfig,
        tuned: set[Weights],
        short: Sequence[Record],
        long: Sequence[Record],
        seed: int,
    ) -> None:
        self.size, self.config, self.tuned, self.seed = size, config, tuned, seed
        self.records = short
        self.short, self.long = Answered.of(short, seed), Answered.of(long, seed)

    def figures(self) -> dict[str, Any]:
        """Return the figures of all experiments."""
        controlled, curve = self.controlled(), self.curve()
        rows = dict.fromkeys(line["row"] for line in (*controlled["lines"], *curve["lines"]))
        return {
            "controlled": controlled,
            "families": {row: (self.short if row in self.short.right else self.long).by_family(row) for row in rows},
            "ablation": self.ablation(),
            "pilot": self.pilot(),
            "beyond": self.beyond(),
            "curve": curve,
            "frames": self.frames(),
            "intervention": self.intervention(),
            "gates": self.gates(),
        }

    def controlled(self) -> Figures:
        """Compare uncompressed videos, the baselines at inference and fine-tuned, and AVIOT."""
        lines = [{"title": "uncompressed", "ratio": None, **self.short.share(UNCOMPRESSED.key)}]
        apart, missing = [], []
        for ratio in self.size.ratios:
            ours = aviot(ratio)
            for title, name, tuned in _competitors():
                if tuned and name not in self.tuned:
                    missing.append({"title": title, "ratio": ratio, "train": training_command(name)})
                    continue
                row = baseline(name, ratio, tuned=tuned)
                lines.append({"title": title, "ratio": ratio, **self.short.share(row.key)})
                apart.append({"title": f"AVIOT minus {title}", "ratio": ratio, **self._minus(ours, row)})
            lines.append({"title": "AVIOT", "ratio": ratio, **self.short.share(ours.key)})
            apart.append({"title": "AVIOT minus uncompressed", "ratio": ratio, **self._minus(ours, UNCOMPRESSED)})
        return {"lines": lines, "differences": apart, "missing": missing}

    def ablation(self) -> Figures:
        """Return every row of the paper's component ablation."""
        lines, apart = [], []
        for ratio in self.size.ablation_ratios:
            full = self._row(ratio)
            for title, switches in ABLATION.items():
                row = self._row(ratio, **switches)
                lines.append({"title": title, "ratio": ratio, **self.short.share(row.key)})
                if row != full:
                    apart.append({"title": f"Full AVIOT minus {title}", "ratio": ratio, **self._minus(full, row)})
        return {"lines": lines, "differences": apart}

    def pilot(self) -> Figures:
        """Compare the paper's balanced pilot, which is uniform, with the unbalanced one."""
        lines, apart = [], []
        for ratio in self.size.ablation_ratios:
            rows = [self._row(ratio, pilot=pilot) for pilot in PILOTS]
            for pilot, row in zip(PILOTS, rows, strict=True):
                lines.append({"title": f"{pilot} pilot", "ratio": ratio, **self.short.share(row.key)})
            apart.append({"title": "unbalanced minus balanced", "ratio": ratio, **self._minus(rows[1], rows[0])})
        return {"own": self.config.pilot, "lines": lines, "differences": apart}

    def beyond(self) -> Figures:
        """Compare the checkpoint's own allocation and cost with those of the switches that the paper does not have."""
        lines, apart = [], []
        for ratio in self.size.ablation_ratios:
            own = self._row(ratio)
            lines.append({"title": "The checkpoint's own", "ratio": ratio, **self.short.share(own.key)})
            for title, switches in beyond(self.config).items():
                row = self._row(ratio, **switches)
                if row != own:
                    lines.append({"title": title, "ratio": ratio, **self.short.share(row.key)})
                    title = f"{title} minus the checkpoint's own"
                    apart.append({"title": title, "ratio": ratio, **self._minus(row, own)})
        return {
            "own": {name: self.config.switch(name) for name in dict.fromkeys(name for name, _ in BEYOND.values())},
            "threshold": self.config.allocation.evidence_threshold,
            "lines": lines,
            "differences": apart,
        }

    def curve(self) -> Figures:
        """Return AVIOT's accuracy over ratios, on long videos (as in the paper) and short ones."""
        lines, apart = [], []
        for frames, answered, row in (
            (self.size.long_frames, self.long, long),
            (self.size.frames, self.short, aviot),
        ):
            for ratio in self.size.curve:
                title, supports = f"{frames} frames", support_count(frames, ratio)
                share = answered.share(row(ratio).key)
                lines.append({"title": title, "ratio": ratio, "supports": supports, **share})
                if ratio > TRAINED_TO:
                    less = answered.difference(row(ratio).key, row(TRAINED_TO).key)
                    apart.append({"title": f"{title}, minus ratio {TRAINED_TO:g}", "ratio": ratio, **less})
        return {"trained_to": TRAINED_TO, "lines": lines, "differences": apart}

    def frames(self) -> Figures:
        """Compare sampled with whole long videos."""
        few, all_of_them = f"{self.size.sampled} frames", f"{self.size.long_frames} frames"
        level, one = self.size.level_ratio, self.size.ratio
        lines = [self._long_line(f"{few}, uncompressed", self.size.sampled, SAMPLED)]
        apart = []
        for ratio in self.size.long_ratios:
            lines.append(self._long_line(few, self.size.sampled, sampled(ratio)))
            lines.append(self._long_line(all_of_them, self.size.long_frames, long(ratio)))
            apart.append((f"{all_of_them} minus {few}", ratio, long(ratio), sampled(ratio)))
        lines.append(self._long_line(all_of_them, self.size.long_frames, long(level)))
        apart.append((f"{all_of_them} minus {few}, uncompressed", one, long(one), SAMPLED))
        apart.append((f"{all_of_them} minus {few} at {one:g}", level, long(level), sampled(one)))
        return {
            "lines": lines,
            "differences": [
                {"title": title, "ratio": ratio, **self.long.difference(row.key, other.key)}
                for title, ratio, row, other in apart
            ],
        }

    def intervention(self) -> Figures:
        """Compare conditionings of the compressor: accuracies, and distances between compressions."""
        places, rows = self.short.in_company(), conditioning_rows(self.size)
        lines = [
            {"title": conditioning, "ratio": row.ratio, **self.short.share(row.key, places)}
            for conditioning, row in rows.items()
        ]
        apart = [
            {
                "title": f"matched minus {conditioning}",
                **self.short.difference(rows["matched"].key, rows[conditioning].key, places),
            }
            for conditioning in ("rotated", "none")
        ]
        return {"lines": lines, "differences": apart, "distances": list(self._distances())}

    def gates(self) -> list[Figures]:
        """Return the outputs' shares by granularity, and the entropy of the budgets."""
        return [
            {"ratio": float(ratio), "quantity": name, **mean_with_interval(values, scenes, self.seed)}
            for ratio, name, values, scenes in usages(self.records)
        ]

    def _row(self, ratio: float, **switches: Any) -> Row:
        return aviot(ratio, **switches).of(self.config)

    def _long_line(self, title: str, frames: int, row: Row) -> Figures:
        supports = frames if row.ratio is None else support_count(frames, row.ratio)
        return {"title": title, "ratio": row.ratio, "supports": supports, **self.long.share(row.key)}

    def _minus(self, row: Row, other: Row) -> Figures:
        return self.short.difference(row.key, other.key)

    def _distances(self) -> Iterator[Figures]:
        every = [one for record in self.records for one in record["distances"]]
        for kind in dict.fromkeys(one["kind"] for one in every):
            found = [one for one in every if one["kind"] == kind]
            scenes = [one["scene"] for one in found]
            yield {"kind": kind} | {
                quantity: mean_with_interval([one[quantity] for one in found], scenes, self.seed)
                for quantity in DISTANCES
            }


def training_command(name: Weights) -> str:
    """Return the commands that train missing weights, from a run before its compressed phase."""
    return (
        f"python -m aviot_lab.demo_model.train RUN --before compressed && "
        f"python -m aviot_lab.demo_model.train RUN-{name} --compressor {name} --start RUN && "
        f"python -m aviot_lab.demo_model.export RUN-{name} {name} && "
        f"python -m aviot_lab.demo_model.train RUN && python -m aviot_lab.demo_model.export RUN MODEL && "
        f"aviot reproduce --model MODEL --{name} {name}"
    )


def _competitors() -> Iterator[tuple[str, Weights, bool]]:
    for name, title in BASELINES.items():
        yield f"{title}, at inference", name, False
        yield f"{title}, fine-tuned", name, True
