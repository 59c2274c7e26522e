"""Everything a page shows, as one structure of plain data."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from aviot.explain.fading import BOLD, FAINTEST
from aviot.explain.fields import FIGURE_STEPS, FIGURES, pack_fields, text_of
from aviot.explain.model_info import ModelInfo
from aviot.explain.pictures import as_jpegs
from aviot.explain.study import Study
from aviot.explain.view import View
from aviot.methods.aviot.analysis import TOP_SHARE

FORMAT = 1
FIELD_BYTES = 2_600_000  # of deflated maps, all views of a page together


@dataclass(frozen=True)
class PageViews:
    """Takes what a page needs of each view as it comes; `views` is how many will."""

    views: int
    taken: list[dict[str, Any]] = field(default_factory=list)

    def keep(self, view: View) -> None:
        """Pack one view."""
        fields = pack_fields(view.mass, view.grid, FIELD_BYTES // self.views)
        self.taken.append(
            {
                "heard": view.heard,
                "path": view.path,
                "budgets": view.budgets,
                "segments": view.segments,
                "paths": view.names,
                "shares": view.shares,
                "mass": text_of(view.frame_mass.numpy().astype("<f4")),
                "checks": asdict(view.checks),
                **asdict(fields),
            }
        )


def report_of(study: Study, views: list[dict[str, Any]]) -> dict[str, Any]:
    """The page's data: numbers, pictures, views, answers, comparisons. JSON can hold it as it is."""
    video, kept = study.video, views[0]["path"][-1]
    before, after = study.tokens
    operations = [study.decoder.prefill_operations(tokens) for tokens in (before, after)]
    return {
        "format": FORMAT,
        "model": model_line(study.model),
        "notice": study.notice,
        "name": readable(video.name),
        "duration": video.duration,
        "times": video.times,
        "size": study.pictures.size,
        "pictures": as_jpegs(study.pictures),
        "grid": study.grid,
        "cover": study.cover,
        "questions": [readable(question) for question in study.questions],
        "ratio": study.ratio,
        "compressor": study.method,
        "supports": kept,
        "tokens": {"before": before, "after": after},
        "prefill": {"before": operations[0], "after": operations[1], "saved": 1 - operations[1] / operations[0]},
        "fading": {"even": TOP_SHARE, "bold": BOLD, "faintest": FAINTEST},
        "figures": FIGURES,
        "figure_steps": FIGURE_STEPS,
        "views": views,
        "conditions": [asdict(condition) | {"answer": readable(condition.answer)} for condition in study.conditions],
        "comparisons": [asdict(comparison) for comparison in study.comparisons],
    }


def model_line(info: ModelInfo) -> dict[str, str]:
    """Return what a page says about the model that answers."""
    return {"name": readable(info.name), "facts": info.facts}


def readable(text: str) -> str:
    """Text without what no page may hold: control characters, and halves of surrogate pairs of odd file names."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)
