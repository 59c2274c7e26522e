"""What compression saves in the decoder: visual tokens and prefill operations, for any backbone shape."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """The shape of a video language model, as far as the count goes; the defaults are LLaVA-Video-7B-Qwen2's."""

    layers: int = 28
    width: int = 3584
    feed_forward: int = 18944
    grid: tuple[int, int] = (27, 27)
    pool_stride: int = 2

    def __post_init__(self) -> None:
        for name in ("layers", "width", "feed_forward", "pool_stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if min(self.grid) < 1:
            raise ValueError(f"grid must have at least one row and one column, got {self.grid}")

    @property
    def tokens_per_support(self) -> int:
        """Pooled rows, each with a separator after it: 14 * (14 + 1) = 210 for the default (eq:supp_visual_tokens)."""
        rows, columns = (-(-side // self.pool_stride) for side in self.grid)
        return rows * (columns + 1)

    def prefill_operations(self, tokens: int) -> int:
        """L (4 n d^2 + 2 n^2 d + 2 n d d_ff) for a prefix of n tokens (eq:supp_prefill_flops)."""
        n, d = tokens, self.width
        return self.layers * (4 * n * d**2 + 2 * n**2 * d + 2 * n * d * self.feed_forward)


@dataclass(frozen=True)
class Account:
    """One row of the table: what the decoder is handed at one ratio."""

    ratio: float | None  # None: uncompressed
    supports: int
    tokens: int
    retention: float
    prefill_operations: int
    saved: float  # share of the uncompressed prefill


def account(backbone: Backbone, frames: int, ratios: list[float]) -> list[Account]:
    """Count uncompressed, then at every ratio, for a video of `frames` frames."""
    from aviot.methods.aviot.schedule import support_count  # here, since every help text waits for this module

    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    full = backbone.prefill_operations(frames * backbone.tokens_per_support)
    rows = []
    for ratio in (None, *ratios):
        supports = frames if ratio is None else support_count(frames, ratio)
        tokens = supports * backbone.tokens_per_support
        operations = backbone.prefill_operations(tokens)
        rows.append(Account(ratio, supports, tokens, supports / frames, operations, 1 - operations / full))
    return rows
