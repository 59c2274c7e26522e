"""A minute with the compressor: four scenes, two questions, and where the supports go."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from aviot.accounting import Backbone
from aviot.compressor import Compression, Compressor, PositionEncoder
from aviot.config import CompressorConfig

SCENES = ("kitchen", "street", "beach", "office")
SEED = 0


@dataclass(frozen=True)
class DemoAnswer:
    """One question's compression, and what can be said of it."""

    scene: str
    compression: Compression
    frame_share: tuple[float, ...]  # of the outputs' mass, by scene
    rebuilt_error: float  # of the coefficients times the features, against the output


@dataclass(frozen=True)
class Demo:
    """Everything the demo shows."""

    frames: int
    ratio: float
    tokens_before: int
    tokens_after: int
    answers: tuple[DemoAnswer, ...]


def synthetic_features(config: CompressorConfig, frames: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features of a made-up video [T,S,D], one scene after the other, and the scenes' directions [4,D].

    Every scene has a direction of its own, a slowly moving part and noise.
    """
    scenes = F.normalize(torch.randn(len(SCENES), config.dim, generator=generator), dim=-1)
    which = torch.arange(frames) * len(SCENES) // frames
    texture = torch.randn(config.patches, config.dim, generator=generator)
    drift = torch.linspace(0, 1, frames)[:, None, None] * torch.randn(
        1, config.patches, config.dim, generator=generator
    )
    noise = 0.3 * torch.randn(frames, config.patches, config.dim, generator=generator)
    return 8 * scenes[which][:, None] + texture + drift + noise, scenes


def run_demo(frames: int, ratio: float) -> Demo:
    """Compress one made-up video for two questions, with untrained weights."""
    if frames < len(SCENES):
        raise ValueError(f"frames must be at least {len(SCENES)}, one a scene, got {frames}")
    config = CompressorConfig(dim=64, cost_dim=32)
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        compressor = Compressor(config)
    u, scenes = synthetic_features(config, frames, generator)
    x = PositionEncoder(config)(u)
    with torch.no_grad():
        answers = tuple(_ask(compressor, x, u, scenes, scene, ratio) for scene in (0, 3))
    tokens = Backbone().tokens_per_support
    kept = answers[0].compression.features.shape[0]
    return Demo(frames, ratio, frames * tokens, kept * tokens, answers)


def _ask(
    compressor: Compressor,
    x: Float[Tensor, "T S D"],
    u: Float[Tensor, "T S D"],
    scenes: Float[Tensor, "4 D"],
    scene: int,
    ratio: float,
) -> DemoAnswer:
    relevance = torch.cosine_similarity(x.mean(1), scenes[scene], dim=-1)
    out = compressor(x, question=scenes[scene], relevance=relevance, motion=u, ratio=ratio)
    provenance = out.provenance()
    rebuilt = torch.einsum("kst,tsd->ksd", provenance.coefficients, x)
    error = (rebuilt - out.features).norm() / out.features.norm()
    which = torch.arange(len(x)) * len(SCENES) // len(x)
    by_frame = provenance.frames().mean(0)
    share = torch.zeros(len(SCENES)).index_add(0, which, by_frame)
    return DemoAnswer(SCENES[scene], out, tuple(share.tolist()), float(error))
