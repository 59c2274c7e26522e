"""The pages: a report's data, the HTML file that shows it, and the app's page. They load nothing from a network."""

import base64
import hashlib
import html
import json
import re
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

from aviot import methods
from aviot.explain.blends import blended
from aviot.explain.clip import clip_of
from aviot.explain.maps import BOLD, EVEN, FAINTEST, FIGURE_STEPS, FIGURES, deflated, pack_maps
from aviot.explain.pictures import Pictures, as_jpegs
from aviot.explain.spending import sentence
from aviot.explain.study import ModelInfo, Study
from aviot.explain.view import View
from aviot.methods.aviot.analysis import TOP_SHARE

FORMAT = 1
ALTERNATIVE_BYTES = 300_000  # of the pictures of what a page compares with
BLEND_BYTES = 600_000  # of the blended pictures, all views of a page together
POLICY_PLACE = "POLICY"  # of a report, before its script is known
MAP_BYTES = 2_200_000  # of deflated maps, all views of a page together
SCRIPTS = (
    "data.js",
    "dom.js",
    "words.js",
    "draw.js",
    "chart.js",
    "player.js",
    "timeline.js",
    "first.js",
    "supports.js",
    "budgets.js",
    "map.js",
    "frame.js",
    "paths.js",
    "compare.js",
    "versus.js",
    "link.js",
    "explorer.js",
)

# Pages load nothing from elsewhere and run only their own script, which is named by its hash.
CLOSED = (
    "default-src 'none'; img-src data:; media-src blob:; style-src 'unsafe-inline'; script-src {script}; "
    "base-uri 'none'; form-action 'none'"
)
POLICY = CLOSED + "; connect-src 'self'; frame-ancestors 'none'"  # of the app, as a header


@dataclass(frozen=True)
class PageViews:
    """A collector of each view's data for a page; `count` is the number of views that will be added."""

    count: int
    pictures: Pictures
    cover: float
    packed: list[dict[str, Any]] = field(default_factory=list)

    def add(self, view: View) -> None:
        """Pack one view."""
        maps = pack_maps(view.mass, view.grid, MAP_BYTES // self.count)
        self.packed.append(
            {
                "heard": view.question,
                "path": view.path,
                "budgets": view.budgets,
                "segments": view.segments,
                "paths": view.names,
                "shares": view.shares,
                "blends": as_jpegs(
                    blended(view.coefficients, self.pictures, view.grid, self.cover), BLEND_BYTES // self.count
                ),
                "tokens": [int(count) for count in view.tokens],
                "spent": [round(share, 7) for share in view.spent.tolist()],
                "spans": view.spans,
                "half": view.half,
                "scores": [[round(score, 5) for score in view.scores(n).tolist()] for n in range(len(view.relevance))],
                "mass": deflated(view.frame_mass.numpy().astype("<f4")),
                "checks": asdict(view.checks),
                **asdict(maps),
            }
        )


def report_of(study: Study, views: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a page's data for JSON: numbers, pictures, views, answers and comparisons."""
    video, supports, method = study.video, views[0]["path"][-1], methods.get(study.method)
    before, after = study.tokens
    clip = study.pictures.clip or clip_of(study.pictures.images, study.times, video.duration)
    operations = [study.decoder.prefill_operations(tokens) for tokens in (before, after)]
    return {
        "format": FORMAT,
        "model": described_model(study.model),
        "notice": study.notice,
        "name": readable(video.name),
        "duration": video.duration,
        "times": study.times,
        "size": study.pictures.size,
        "pictures": as_jpegs(study.pictures.images),
        "clip": None if clip is None else {"kind": clip.kind, "data": base64.b64encode(clip.data).decode("ascii")},
        "grid": study.grid,
        "cover": study.cover,
        "questions": [readable(question) for question in study.questions],
        "ratio": study.ratio,
        "method": study.method,
        "title": method.title or method.name,
        "conditioned": method.uses_question or method.inside is not None,
        "inside": method.inside is not None,
        "whole_frames": method.point == "features",
        "per_frame": study.per_frame,
        "supports": supports,
        "tokens": {"before": before, "after": after},
        "prefill": {"before": operations[0], "after": operations[1], "saved": 1 - operations[1] / operations[0]},
        "fading": {"even": TOP_SHARE, "bold": BOLD, "faintest": FAINTEST, "uniform": EVEN},
        "figures": FIGURES,
        "figure_steps": FIGURE_STEPS,
        "views": views,
        "conditions": [
            asdict(condition)
            | {
                "answer": readable(condition.answer),
                "sentence": sentence(condition.tokens, study.times, views[condition.view]["spent"]),
            }
            for condition in study.conditions
        ],
        "alternatives": alternatives_of(study),
        "comparisons": [asdict(comparison) for comparison in study.comparisons],
    }


def alternatives_of(study: Study) -> list[dict[str, Any]]:
    """Return the page's data for the same questions with other methods and budgets."""
    most = ALTERNATIVE_BYTES // max(1, len(study.alternatives))
    return [
        {
            "question": each.question,
            "method": each.method,
            "title": each.title,
            "budget": each.budget,
            "answer": readable(each.answer),
            "tokens": each.tokens,
            "spent": [round(share, 7) for share in each.spent],
            "sentence": each.sentence,
            "blends": as_jpegs(each.supports, most),
            "spans": each.spans,
            "refused": readable(each.refused),
        }
        for each in study.alternatives
    ]


def page_of(report: dict[str, Any]) -> str:
    """Return a report as one HTML file."""
    parts = {
        "title": html.escape(f"{report['name']}: where the answer came from"),
        "style": resource("explorer.css"),
        "script": explorer_script(),
        "data": embedded(report),
        "policy": POLICY_PLACE,
    }
    page = filled(resource("report.html"), parts)
    return page.replace(POLICY_PLACE, CLOSED.format(script=script_hash(page)), 1)


def script_hash(page: str) -> str:
    """Return the source expression of a page's one script, for its content security policy."""
    script = page[page.index("<script>") + len("<script>") : page.rindex("</script>")]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def explorer_script() -> str:
    """Return the explorer's script, which defines `explore(root, data)`, and `el` and `whole` for other scripts."""
    inner = "\n".join(resource(name) for name in SCRIPTS)
    names = "{ explore, el, whole }"
    return f'"use strict";\nconst {names} = (() => {{\n{inner}\nreturn {names};\n}})();\n'


def resource(name: str) -> str:
    """Return a file of the directory `page/` beside this module."""
    return (files("aviot.explain") / "page" / name).read_text(encoding="utf-8")


def filled(template: str, parts: dict[str, str]) -> str:
    """Return a template with its {{names}} replaced in one pass, so that inserted text is not expanded again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def embedded(data: Any) -> str:
    """Return JSON that can stand inside a script element, whatever its strings hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    unsafe = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    return re.sub("[<>&\u2028\u2029]", lambda match: unsafe[match[0]], text)


def described_model(info: ModelInfo) -> dict[str, str]:
    """Return a page's description of the model that answers."""
    return {"name": readable(info.name), "facts": info.facts}


def readable(text: str) -> str:
    """Return text with control characters and unpaired surrogates replaced, which a page must not hold."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)
