"""The page: a template, our own style and script, and the data, in one file that asks nothing of a network."""

import html
import json
import re
from importlib.resources import files
from typing import Any

SCRIPTS = (
    "data.js",
    "dom.js",
    "draw.js",
    "chart.js",
    "summary.js",
    "strip.js",
    "map.js",
    "support.js",
    "frame.js",
    "paths.js",
    "compare.js",
    "explorer.js",
)


def page_of(report: dict[str, Any]) -> str:
    """A report as a whole HTML file."""
    parts = {
        "title": html.escape(f"{report['name']}: where the answer came from"),
        "style": resource("explorer.css"),
        "script": explorer_script(),
        "data": embedded(report),
    }
    return filled(resource("report.html"), parts)


def explorer_script() -> str:
    """The explorer: defines `explore(root, data)` and nothing else."""
    inner = "\n".join(resource(name) for name in SCRIPTS)
    return f'"use strict";\nconst explore = (() => {{\n{inner}\nreturn explore;\n}})();\n'


def resource(name: str) -> str:
    """A file that lies beside this one, in `page/`."""
    return (files("aviot.explain") / "page" / name).read_text(encoding="utf-8")


def filled(template: str, parts: dict[str, str]) -> str:
    """A template with its {{names}} replaced, all at once: what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def embedded(data: Any) -> str:
    """JSON that can stand inside a script element, whatever its strings hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    unsafe = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    return re.sub("[<>&\u2028\u2029]", lambda match: unsafe[match[0]], text)
