from aviot.video.errors import VideoError as VideoError
from aviot.video.read import Source as Source
from aviot.video.read import read_video as read_video
from aviot.video.result import Video as Video
from aviot.video.sample import Sampling as Sampling
from aviot.video.shelf import Frames as Frames
from aviot.video.shelf import Picture as Picture
from aviot.video.shelf import Transform as Transform
