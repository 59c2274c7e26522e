"""One way to mix whole frames as the model does it on a GPU, replayed as a CUDA graph."""

from dataclasses import replace

from torch import Tensor, nn

from aviot.budget import Budget
from aviot.methods.aviot.replay import Replays
from aviot.methods.base import FrameMethod
from aviot.methods.features import VideoFeatures


def replayed_mix(
    replays: Replays,
    method: FrameMethod,
    videos: VideoFeatures,
    *,
    asked: Tensor | None,
    budget: Budget,
    modules: tuple[nn.Module, ...],
) -> Tensor:
    """Return the compressed features of one video or a batch; the graph copies features and extras, and no more."""

    def work(features: Tensor, asked: Tensor | None = None, **extras: Tensor) -> Tensor:
        return method.mix(replace(videos, features=features, extras=extras), question=asked, budget=budget).features

    inputs = {"features": videos.features, **videos.extras} | ({} if asked is None else {"asked": asked})
    return replays.run(work, inputs, key=(*method.replay_key, budget), modules=modules)
