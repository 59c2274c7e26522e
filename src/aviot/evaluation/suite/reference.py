"""The paper's own figures: those that a run can be put beside."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aviot.evaluation.config import Setting

DENSE = {"fps": 2.0, "max_frames": 224}
FIXED = {"frames": 64}
TABLE_RATIO = 4.0
"""Of the paper's table of models."""

CONTROLLED_RATIOS = (2.0, 4.0, 10.0)
"""Of its controlled comparison."""

UNCOMPRESSED = "the paper's uncompressed row is LLaVA-Video-7B, another checkpoint"
_FILE = Path(__file__).parent / "paper.json"


@dataclass(frozen=True)
class Figure:
    """A percentage that the paper prints, and where."""

    score: float
    source: str


@cache
def tables() -> list[dict[str, Any]]:
    """The paper's tables."""
    stored: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return list(stored["tables"])


def sampling_name(sampling: Mapping[str, Any]) -> str:
    """A way of taking frames, as the tables name it."""
    if sampling.get("frames") is not None:
        return f"frames={sampling['frames']}"
    return f"fps={sampling.get('fps'):g},max_frames={sampling.get('max_frames')}"


def figure(benchmark: str, sampling: str, setting: Setting, part: str | None = None) -> Figure | None:
    """What the paper says for a setting: of a whole benchmark, or of a part of one."""
    for table in tables():
        if table["sampling"] != sampling or table.get("benchmark") != (benchmark if part else None):
            continue
        ratio = "" if setting.ratio is None else f"{setting.ratio:g}"
        score = table["scores"].get(setting.compressor, {}).get(ratio, {}).get(part or benchmark)
        if score is not None:
            return Figure(score, f"{table['title']} ({table['label']})")
    return None


def sweep(benchmark: str, sampling: str) -> Iterator[tuple[float, float]]:
    """Ratio and score of AVIOT wherever the paper gives them, ratios rising."""
    found: dict[float, float] = {}
    for table in tables():
        if table["sampling"] == sampling and "benchmark" not in table:
            for ratio, scores in table["scores"].get("aviot", {}).items():
                if benchmark in scores:
                    found[float(ratio)] = scores[benchmark]
    yield from sorted(found.items())
