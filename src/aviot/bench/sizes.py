"""Shapes of models with random weights, and checks of a benchmark's settings; needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aviot.config import CompressorConfig
from aviot.utils.values import as_whole

DTYPES = ("float32", "bfloat16")
POSITIONS = 2**20  # longest prompt; long videos are also measured uncompressed


@dataclass(frozen=True, kw_only=True)
class Tower:
    """The shape of a stack of transformer layers."""

    width: int
    feed_forward: int
    layers: int
    heads: int
    key_heads: int

    def config(self) -> dict[str, Any]:
        """Return what the configurations of both towers have for transformers."""
        return {
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
        }


@dataclass(frozen=True, kw_only=True)
class Size:
    """The shape of a video language model with a SigLIP encoder and a Qwen2 decoder."""

    vision: Tower
    text: Tower
    image: int
    patch: int
    vocabulary: int
    cost_dim: int

    @property
    def side(self) -> int:
        """Number of patches along a side of the grid."""
        return self.image // self.patch

    @property
    def token_grid(self) -> tuple[int, int]:
        """Rows and columns of a frame's tokens in the decoder: pooled by two, with a separator after each row."""
        rows = -(-self.side // 2)
        return rows, rows + 1

    @property
    def compressor(self) -> CompressorConfig:
        """The compressor's configuration."""
        return CompressorConfig(dim=self.vision.width, cost_dim=self.cost_dim, grid=(self.side, self.side))

    def vision_config(self) -> dict[str, Any]:
        """Return the encoder's configuration for transformers."""
        own = {"image_size": self.image, "patch_size": self.patch, "vision_use_head": False}
        return self.vision.config() | own

    def text_config(self) -> dict[str, Any]:
        """Return the decoder's configuration for transformers."""
        return self.text.config() | {
            "num_key_value_heads": self.text.key_heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": POSITIONS,
        }


SIZES = {
    "tiny": Size(
        vision=Tower(width=64, feed_forward=128, layers=2, heads=4, key_heads=4),
        text=Tower(width=128, feed_forward=256, layers=2, heads=4, key_heads=2),
        image=126,
        patch=14,
        vocabulary=2048,
        cost_dim=32,
    ),
    "small": Size(  # SigLIP base at 224 pixels, and the decoder of Qwen2-0.5B
        vision=Tower(width=768, feed_forward=3072, layers=12, heads=12, key_heads=12),
        text=Tower(width=896, feed_forward=4864, layers=24, heads=14, key_heads=2),
        image=224,
        patch=16,
        vocabulary=151936,
        cost_dim=256,
    ),
    "7b": Size(  # LLaVA-Video-7B-Qwen2: SigLIP so400m without its last layer, and Qwen2-7B
        vision=Tower(width=1152, feed_forward=4304, layers=26, heads=16, key_heads=16),
        text=Tower(width=3584, feed_forward=18944, layers=28, heads=28, key_heads=4),
        image=384,
        patch=14,
        vocabulary=152064,
        cost_dim=256,
    ),
}

FAMILY_SIZES = ("llava-onevision-7b", "qwen2.5-vl-7b", "qwen3-vl-8b")
"""Models of Hugging Face families, in their true sizes (`aviot.bench.random_families`)."""


def check_settings(
    *, frames: Sequence[int], batches: Sequence[int], repeats: int, size: str | None, dtype: str
) -> None:
    """Raise ValueError for numbers below 1 and for unknown sizes and types."""
    for name, values in (("frames", frames), ("batches", batches), ("repeats", (repeats,))):
        if not values or any((as_whole(value) or 0) < 1 for value in values):
            raise ValueError(f"{name} must be whole numbers of at least 1, got {list(values)}")
    if size is not None and size not in (*SIZES, *FAMILY_SIZES):
        raise ValueError(f"size must be one of {', '.join((*SIZES, *FAMILY_SIZES))}, got {size!r}")
    if dtype not in ("auto", *DTYPES):
        raise ValueError(f"dtype must be auto, {' or '.join(DTYPES)}, got {dtype!r}")
