"""Scenes as files: MP4 videos, and JSON descriptions with questions."""

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from aviot.bundled import WORLD_MARK
from aviot.scenes.rendering import render
from aviot.scenes.scene import Actor, Bounce, Camera, Evidence, Glide, Jumps, Lane, Orbit, Plot, Scene, Shot

QUALITY = "10"  # x264's constant rate factor: objects of twenty pixels should keep their colours and textures
TRAJECTORIES = {kind.__name__: kind for kind in (Jumps, Glide, Orbit, Lane, Bounce)}


@dataclass(frozen=True)
class SceneWithQuestions:
    """A scene, and pairs of a question about it and its answer."""

    scene: Scene
    questions: tuple[tuple[str, str], ...]


def save(scene: Scene, path: str | Path) -> None:
    """Write a scene as H.264 in MP4, every frame once, at the scene's frame rate. Needs PyAV, of the video extra.

    The file's comment tag says that this package drew it, and which scene it shows; `aviot.bundled.is_drawn` reads it.
    """
    try:
        import av
    except ImportError as error:
        raise ImportError("writing a video needs PyAV; install it with pip install 'aviot[video]'") from error
    frames = render([scene]).frames[0].numpy()
    with av.open(str(path), "w", format="mp4") as container:
        container.metadata["comment"] = f"{WORLD_MARK}: seed {scene.seed}, split {scene.split}, scene {scene.index}"
        stream = container.add_stream("libx264", rate=Fraction(scene.fps), options={"crf": QUALITY})
        stream.width = stream.height = scene.size
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def to_json(described: SceneWithQuestions) -> str:
    """Return a scene and its questions as JSON; `from_json` gives the same scene back, to the last bit."""
    scene = asdict(described.scene)
    for actor, record in zip(described.scene.actors, scene["actors"], strict=True):
        record["path"] = {"kind": type(actor.path).__name__, **asdict(actor.path)}
    questions = [{"question": question, "answer": answer} for question, answer in described.questions]
    return json.dumps({"scene": scene, "questions": questions}) + "\n"


def from_json(text: str) -> SceneWithQuestions:
    """Return the scene and the questions that `to_json` wrote."""
    record = json.loads(text)
    scene = {name: _as_tuples(value) for name, value in record["scene"].items()}
    whole = Scene(
        **scene
        | {
            "actors": tuple(_actor(actor) for actor in scene["actors"]),
            "shots": tuple(Shot(**shot) for shot in scene["shots"]),
            "camera": Camera(**scene["camera"]),
            "plots": tuple(_plot(plot) for plot in scene["plots"]),
        }
    )
    return SceneWithQuestions(whole, tuple((one["question"], one["answer"]) for one in record["questions"]))


def _actor(record: dict[str, Any]) -> Actor:
    fields = dict(record["path"])
    trajectory = TRAJECTORIES[fields.pop("kind")](**fields)
    return Actor(**record | {"path": trajectory})


def _plot(record: dict[str, Any]) -> Plot:
    return Plot(**record | {"evidence": tuple(Evidence(**one) for one in record["evidence"])})


def _as_tuples(value: Any) -> Any:
    """Return JSON data with tuples in place of its lists."""
    if isinstance(value, list):
        return tuple(_as_tuples(one) for one in value)
    if isinstance(value, dict):
        return {name: _as_tuples(one) for name, one in value.items()}
    return value
