"""A compressor's inputs: checked once, with messages that say how to fix them."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.config import CompressorConfig
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.aviot.schedule import support_count
from aviot.utils.values import as_whole

FEATURE_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Inputs:
    """Checked inputs with a batch axis; features in their own type, the rest in the type they are used in."""

    x: Float[Tensor, "B T S D"]
    question: Float[Tensor, "B D"] | None
    relevance: Float[Tensor, "B T"] | None
    motion: Float[Tensor, "B T S D"] | None
    supports: int
    batched: bool


@dataclass(frozen=True)
class RawInputs:
    """A call's arguments, unchecked."""

    x: Tensor
    question: Tensor | None
    relevance: Tensor | None
    motion: Tensor | None
    ratio: float | None
    supports: int | None


def check_inputs(config: CompressorConfig, device: torch.device | None, finite: FiniteCheck, raw: RawInputs) -> Inputs:
    """Raise for inputs that cannot be compressed, else return them in one form; `device` is the weights', if any."""
    x, question, relevance, motion = raw.x, raw.question, raw.relevance, raw.motion
    check_features(x, config, device)
    batched = x.ndim == 4
    features = x if batched else x[None]
    batch, frames = features.shape[:2]
    dtype = working_dtype(x.dtype)
    _check_companion("question", question, x, (config.dim,))
    _check_companion("relevance", relevance, x, (frames,))
    if motion is not None:
        check_features(motion, config, x.device, name="motion")
        if motion.shape != x.shape:
            raise ValueError(f"motion must have the features' shape {tuple(x.shape)}, got {tuple(motion.shape)}")
    finite.enter("")  # no stage yet: messages name the input alone
    return Inputs(
        x=features,
        question=_companion(question, batch, dtype, finite, "the question is"),
        relevance=_companion(relevance, batch, torch.float64, finite, "the relevance is"),
        motion=motion if motion is None or batched else motion[None],
        supports=_supports(frames, raw.ratio, raw.supports),
        batched=batched,
    )


def require_finite(features: Float[Tensor, "B T S D"], finite: FiniteCheck) -> None:
    """Check features that no stage reads; a patch that is not finite gives a mean that is not."""
    finite.require(features.mean(2, dtype=working_dtype(features.dtype)), "the features x are")


def check_features(x: Any, config: CompressorConfig, device: torch.device | None, name: str = "features x") -> None:
    """Raise unless x holds [T,S,D] or [B,T,S,D] floating point features of the config's grid and width."""
    rows, columns = config.grid
    expected = f"[T,{config.patches},{config.dim}] or [B,T,{config.patches},{config.dim}]"
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} must be a torch tensor {expected}, got {type(x).__name__}; convert it with torch.as_tensor"
        )
    if x.dtype not in FEATURE_TYPES or x.layout != torch.strided or x.is_nested:
        kind = x.dtype if x.layout == torch.strided and not x.is_nested else "a sparse or nested tensor"
        raise ValueError(f"{name} must be dense and floating point, got {kind}; convert with .float() or .to_dense()")
    if x.ndim not in (3, 4):
        raise ValueError(f"{name} must be {expected}, got {tuple(x.shape)}")
    if x.shape[-2] != config.patches:
        raise ValueError(
            f"{name} must have {config.patches} patches (grid {rows}x{columns}), got {x.shape[-2]}; "
            "set CompressorConfig(grid=(rows, columns)) to the encoder's"
        )
    if x.shape[-1] != config.dim:
        raise ValueError(f"{name} must have {config.dim} channels, got {x.shape[-1]}; set CompressorConfig(dim=...)")
    if 0 in x.shape:
        raise ValueError(f"{name} must have at least one frame and one video, got {tuple(x.shape)}")
    if device is not None and x.device != device:
        raise ValueError(
            f"{name} must be on the weights' device {device}, got {x.device}; move one of them with .to(...)"
        )


def _check_companion(name: str, value: Any, x: Tensor, tail: tuple[int]) -> None:
    """Raise unless a question or relevance is one vector for all videos, or one per video of a batch.

    `tail` is the shape of one vector.
    """
    if value is None:
        return
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} must be a floating point tensor or None, got {got}; convert it with torch.as_tensor")
    shapes = [tail] if x.ndim == 3 else [tail, (x.shape[0], *tail)]
    if tuple(value.shape) not in shapes:
        raise ValueError(
            f"{name} must be {' or '.join(str(list(shape)) for shape in shapes)} for features {tuple(x.shape)}, "
            f"got {tuple(value.shape)}"
        )
    if value.device != x.device:
        raise ValueError(
            f"{name} must be on the features' device {x.device}, got {value.device}; move it with .to(...)"
        )


def _companion(value: Tensor | None, batch: int, dtype: torch.dtype, finite: FiniteCheck, what: str) -> Tensor | None:
    """Return a question or relevance as one row per video [B,n], after a check that it is finite."""
    if value is None:
        return None
    finite.require(value, what)
    return value.to(dtype).expand(batch, value.shape[-1]).contiguous()


def _supports(frames: int, ratio: float | None, supports: int | None) -> int:
    if (ratio is None) == (supports is None):
        raise ValueError("give either ratio (how many times fewer frames) or supports (how many frames to keep)")
    if ratio is not None:
        return support_count(frames, ratio)
    count = as_whole(supports)
    if count is None or count < 1:
        raise ValueError(f"supports must be a whole number of at least 1, got {supports!r}")
    return min(frames, count)
