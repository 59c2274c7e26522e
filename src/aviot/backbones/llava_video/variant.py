"""A loaded model with other switches of its compressor, for ablations: the same weights, not a copy of them."""

import copy
from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from aviot.backbones.llava_video.modeling import AviotForConditionalGeneration

SWITCHES = ("question_cost", "question_allocation", "granularities", "fusion", "pilot")  # none needs other weights

Module = TypeVar("Module", bound=nn.Module)


def variant(model: AviotForConditionalGeneration, **switches: Any) -> AviotForConditionalGeneration:
    """The model as if it had been built with these switches of `CompressorConfig`; it has the weights of `model`.

    What is trained, loaded or moved in one is so in the other, as long as both stay on their device.
    """
    unknown = [name for name in switches if name not in SWITCHES]
    if unknown:
        raise ValueError(f"a variant changes {', '.join(SWITCHES)}, got {', '.join(unknown)}; build a model with that")
    config = copy.deepcopy(model.config)
    changed = replace(config.compressor, **switches)
    config.compressor_config = changed.to_dict()
    compressor = _beside(model.model.compressor)
    compressor.config = changed
    inner = _beside(model.model)
    inner.config, inner.compressor = config, compressor
    outer = _beside(model)
    outer.config, outer.model = config, inner
    return outer


def _beside(module: Module) -> Module:
    """A module of the same parts, of which some can be replaced without the first one's noticing."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    return other
