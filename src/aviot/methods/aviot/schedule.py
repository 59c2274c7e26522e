"""Pure functions of the frame count, the ratio and the training step."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aviot.budget import support_count as support_count
from aviot.config import TRAINING_RATIOS, AllocationConfig, CompressorConfig
from aviot.utils.values import as_whole

if TYPE_CHECKING:
    import torch


def stage_path(frames: int, supports: int, fractions: Sequence[float], multiple: int) -> tuple[int, ...]:
    """Return T = T_0 > T_1 > ... > K: the fractions of T in between, rounded to the nearest multiple (halves up)."""
    path = [frames]
    for fraction in fractions:
        target = multiple * math.floor(fraction * frames / multiple + 0.5)
        if supports < target < path[-1]:
            path.append(target)
    if supports < path[-1]:
        path.append(supports)
    return tuple(path)


def ramp(step: int | None, warmup_steps: int) -> float:
    """Return the progress of a warm-up, step / warmup_steps in [0, 1]; one for None (inference)."""
    if step is None:
        return 1.0
    value = as_whole(step)
    if value is None or value < 0:
        raise ValueError(f"step must be a training step, a whole number of at least 0, or None, got {step!r}")
    return min(value, warmup_steps) / warmup_steps


def relevance_weight(progress: float, config: AllocationConfig) -> float:
    """Return alpha_q, from zero to its final value."""
    return progress * config.relevance_weight


def allocation_temperature(progress: float, config: AllocationConfig) -> float:
    """Return tau, from its initial to its final value."""
    return config.initial_temperature + progress * (config.final_temperature - config.initial_temperature)


def sample_ratio(generator: "torch.Generator", choices: Sequence[float] = TRAINING_RATIOS) -> float:
    """Draw one training ratio uniformly from the choices, by the caller's generator."""
    import torch

    return choices[int(torch.randint(len(choices), (), generator=generator, device=generator.device))]


def path_for(config: CompressorConfig, frames: int, supports: int) -> tuple[int, ...]:
    """Return the temporal cardinalities of a compressor of this config, from T to K."""
    return stage_path(frames, supports, config.fractions, config.stage_multiple)
