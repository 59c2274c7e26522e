"""The app's page, with the explorer's script in it. It loads nothing from a network."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from aviot import methods
from aviot.explain.page import FORMAT, POLICY, embedded, explorer_script, filled, resource, script_hash
from aviot.methods.registry import compresses
from aviot.scenes import scene_with_questions, stored_numbers
from aviot.video import VIDEO_SUFFIXES

SAMPLES = 4  # scenes that the page offers to try
SCRIPTS = ("session.js", "requests.js", "turns.js", "camera.js", "app.js")


@dataclass(frozen=True)
class AppPage:
    """The app's page and its content security policy."""

    html: bytes
    policy: str

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "AppPage":
        """Return the page for a model and the server's limits."""
        shared = {
            "accept": ",".join(("video/*", *VIDEO_SUFFIXES)),
            "format": FORMAT,
            "methods": [name for name in methods.names() if compresses(name)],
            "samples": [_sample(number) for number in stored_numbers()[:SAMPLES]],
        }
        inner = "\n".join(_resource(name) for name in SCRIPTS)
        parts = {
            "style": resource("explorer.css") + _resource("app.css"),
            "script": f"{explorer_script()}(() => {{\n{inner}\n}})();\n",
            "data": embedded(shared | settings),
        }
        page = filled(_resource("app.html"), parts)
        return cls(page.encode(), POLICY.format(script=script_hash(page)))


def _sample(number: int) -> dict[str, Any]:
    """Return the number of a bundled scene, and a question about it."""
    question, _ = scene_with_questions(number).questions[0]
    return {"number": number, "question": question}


def _resource(name: str) -> str:
    return (files("aviot.app") / "page" / name).read_text(encoding="utf-8")
