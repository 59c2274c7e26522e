"""The part of a JSON report that the commands share: what answered, about which video, sampled and compressed how."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aviot.request import Request
    from aviot.session import VideoSession


def describe(request: "Request", session: "VideoSession") -> dict[str, Any]:
    """Return a request and the video that was read for it as plain data: everything but the results."""
    import aviot
    from aviot.explain.model_info import ModelInfo
    from aviot.methods.registry import compresses

    backbone, video = session.backbone, session.video
    info = ModelInfo.of(backbone)
    budget = (request.budget or backbone.default_budget) if compresses(request.method) else None
    return {
        "aviot": aviot.__version__,
        "model": info.name,
        "model_path": backbone.name_or_path,
        "notice": info.foreign(video),
        "video": str(request.video),
        "duration": video.duration,
        "frames": len(video),
        "times": video.times,
        "damage": None if video.damage is None else asdict(video.damage),
        "ratio": None if budget is None else budget.ratio,
        "budget": None if budget is None else str(budget),
        "method": request.method,
        "compressor": request.method,
    }
