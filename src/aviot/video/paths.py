"""Early checks of what a video is read from, without any decoder."""

import stat
from pathlib import Path

from aviot.video.errors import VideoError, reason

VIDEO_SUFFIXES = (
    *(".mp4", ".m4v", ".mov", ".qt", ".3gp", ".3g2", ".f4v", ".mkv", ".mk3d", ".webm", ".avi", ".ogg", ".ogv", ".ogm"),
    *(".gif", ".apng", ".mpg", ".mpeg", ".m1v", ".m2v", ".vob", ".ts", ".mts", ".m2t", ".m2ts", ".flv", ".wmv", ".asf"),
    *(".mxf", ".nut", ".dv", ".ivf", ".obu", ".h264", ".264", ".hevc", ".h265", ".265", ".vc1", ".mjpeg", ".mjpg"),
    ".y4m",
)
"""Usual suffixes of the files that are read, for file pickers. The content alone decides whether a file is a video."""

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def check_source(path: Path, source_fps: float | None = None) -> None:
    """Refuse a path that holds no video and no images, and a frame rate for a file, which has its own."""
    if path.is_dir():
        find_images(path)
        return
    if source_fps is not None:
        raise VideoError("source_fps is for arrays and folders of images; a video file has its own times")
    check_file(path)


def check_file(path: Path) -> None:
    """Refuse what is not a regular file with something in it, before anything could block on it."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise VideoError(f"there is no file {path}; a video must be a local file or folder") from None
    except (OSError, ValueError) as error:
        raise VideoError(f"{path} cannot be read ({reason(error)})") from error
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path} is not a regular file; a video cannot be read from a device, pipe or socket")
    if status.st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes)")


def find_images(folder: Path) -> list[Path]:
    """Return the image files directly in a folder, in any order; hidden ones are passed over."""
    try:
        found = [path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]
    except OSError as error:
        raise VideoError(f"{folder} cannot be read ({reason(error)})") from error
    images = [path for path in found if not path.name.startswith(".")]
    if not images:
        raise VideoError(
            f"{folder} is a folder without images; expected files that end in {', '.join(sorted(IMAGE_SUFFIXES))}"
        )
    return images
