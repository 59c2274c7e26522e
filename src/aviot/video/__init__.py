"""Video in: the frames a model looks at, from files, folders of images and arrays. Knows nothing of models."""

from aviot.video.errors import VideoError
from aviot.video.read import VIDEO_SUFFIXES, Source, read_video
from aviot.video.result import Video
from aviot.video.sample import Sampling
from aviot.video.shelf import Frames, Picture, Transform

__all__ = [
    "VIDEO_SUFFIXES",
    "Frames",
    "Picture",
    "Sampling",
    "Source",
    "Transform",
    "Video",
    "VideoError",
    "read_video",
]
