"""An opened video as the server keeps it."""

from dataclasses import dataclass

from aviot.explain.pictures import Pictures, pictures_of
from aviot.session import VideoSession


@dataclass(frozen=True, eq=False)
class Opened:
    """An encoded video with a picture of every frame; no pictures: the encoder's own frames are shown."""

    session: VideoSession
    thumbnails: Pictures | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of features, frames and pictures, and of what methods computed since."""
        encoded = self.session.encoded
        tensors = (encoded.features, *encoded.extras.values(), *encoded.cache.values(), encoded.video.frames)
        pictures = () if self.thumbnails is None else self.thumbnails.images
        return sum(int(one.nbytes) for one in tensors) + sum(3 * one.width * one.height for one in pictures)

    @property
    def pictures(self) -> Pictures:
        """A picture of every frame."""
        return self.thumbnails or pictures_of(self.session.video)
