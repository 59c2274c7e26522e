"""Channels of families whose decoder adds features of the encoder to the tokens in several layers (deepstack)."""

import re

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.features import VideoFeatures

_LAYER = re.compile(r"deepstack_(\d+)")


def all_channels(video: VideoFeatures) -> Float[Tensor, "T S C"]:
    """Return the tokens with the extras `deepstack_0`, `deepstack_1`, ... behind them along the channels."""
    found = {int(match[1]): name for name in video.extras if (match := _LAYER.fullmatch(name))}
    layers = [video.extras[found[number]].to(video.features) for number in sorted(found)]
    return torch.cat((video.features, *layers), -1) if layers else video.features
