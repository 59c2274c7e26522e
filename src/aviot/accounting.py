"""Visual tokens and prefill operations of the decoder with and without compression, for any backbone shape."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """The dimensions of a video language model that the counts depend on; the defaults are LLaVA-Video-7B-Qwen2's.

    `separators` says whether a token follows each row; `structure_tokens` is the number of those that a video has once.
    """

    layers: int = 28
    width: int = 3584
    feed_forward: int = 18944
    grid: tuple[int, int] = (27, 27)
    pool_stride: int = 2
    separators: bool = True
    structure_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "width", "feed_forward", "pool_stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if min(self.grid) < 1:
            raise ValueError(f"grid must have at least one row and one column, got {self.grid}")

    @property
    def tokens_per_support(self) -> int:
        """Return the tokens of pooled rows, each with its separator if there are any (eq:supp_visual_tokens).

        The default is 14 * (14 + 1) = 210.
        """
        rows, columns = (-(-side // self.pool_stride) for side in self.grid)
        return rows * (columns + self.separators)

    def prefill_operations(self, tokens: int) -> int:
        """Return L (4 n d^2 + 2 n^2 d + 2 n d d_ff) for a prefix of n tokens (eq:supp_prefill_flops)."""
        n, d = tokens, self.width
        return self.layers * (4 * n * d**2 + 2 * n**2 * d + 2 * n * d * self.feed_forward)


@dataclass(frozen=True)
class Account:
    """Tokens and operations of the decoder at one ratio."""

    ratio: float | None  # None: uncompressed
    supports: int
    tokens: int
    retention: float  # share of the uncompressed tokens
    prefill_operations: int
    saved: float  # share of the uncompressed prefill


def account(backbone: Backbone, frames: int, ratios: list[float]) -> list[Account]:
    """Return the counts for a video of `frames` frames of the encoder: uncompressed first, then at each ratio."""
    from aviot.methods.aviot.schedule import (
        support_count,
    )  # here, since every command imports this module when it starts

    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    whole = frames * backbone.tokens_per_support + backbone.structure_tokens
    full = backbone.prefill_operations(whole)
    rows = []
    for ratio in (None, *ratios):
        supports = frames if ratio is None else support_count(frames, ratio)
        tokens = supports * backbone.tokens_per_support + backbone.structure_tokens
        operations = backbone.prefill_operations(tokens)
        rows.append(Account(ratio, supports, tokens, tokens / whole, operations, 1 - operations / full))
    return rows
