"""Scenes as video files."""

from fractions import Fraction
from pathlib import Path

from aviot.synthetic.render import render
from aviot.synthetic.scene import Scene

MARK = "Drawn by AVIOT's procedural world"  # begins the comment tag of every file that `save` writes
QUALITY = "10"  # x264's constant rate factor: objects of twenty pixels should keep their colours and textures


def save(scene: Scene, path: str | Path) -> None:
    """Write a scene as H.264 in MP4, every frame of it once, at the scene's rate. Needs PyAV, of the video extra.

    The file's comment tag says that this package drew it, and which scene it shows; `is_drawn` reads it.
    """
    try:
        import av
    except ImportError as error:
        raise ImportError("writing a video needs PyAV; install it with pip install 'aviot[video]'") from error
    frames = render([scene]).frames[0].numpy()
    with av.open(str(path), "w", format="mp4") as container:
        container.metadata["comment"] = f"{MARK}: seed {scene.seed}, split {scene.split}, scene {scene.index}"
        stream = container.add_stream("libx264", rate=Fraction(scene.fps), options={"crf": QUALITY})
        stream.width = stream.height = scene.size
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def is_drawn(comment: str) -> bool:
    """Return whether a video's comment tag says that `save` wrote it. Remuxed and re-encoded copies keep the tag."""
    return comment.startswith(MARK)
