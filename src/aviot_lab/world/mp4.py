"""Scenes as video files."""

from fractions import Fraction
from pathlib import Path

from aviot.bundled import WORLD_MARK
from aviot_lab.world.render import render
from aviot_lab.world.scene import Scene

QUALITY = "10"  # x264's constant rate factor: objects of twenty pixels should keep their colours and textures


def save(scene: Scene, path: str | Path) -> None:
    """Write a scene as H.264 in MP4, every frame of it once, at the scene's rate. Needs PyAV, of the video extra.

    The file's comment tag says that this package drew it, and which scene it shows; `aviot.bundled.is_drawn`
    reads it.
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
