"""The part of a JSON report that the commands share: what answered, about which video, sampled and compressed how."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aviot.models import AviotForConditionalGeneration
    from aviot.request import Request
    from aviot.video import Video


def describe(request: "Request", model: "AviotForConditionalGeneration", video: "Video") -> dict[str, Any]:
    """Return a request and the video that was read for it as plain data: everything but what was found."""
    import aviot
    from aviot.explain.model_info import ModelInfo

    info = ModelInfo.of(model)
    compressed = request.compressor != "none"
    return {
        "aviot": aviot.__version__,
        "model": info.name,
        "model_path": model.name_or_path,
        "notice": info.foreign(video),
        "video": str(request.video),
        "duration": video.duration,
        "frames": len(video),
        "times": video.times,
        "damage": None if video.damage is None else asdict(video.damage),
        "ratio": (request.ratio or model.config.ratio) if compressed else None,
        "compressor": request.compressor,
    }
