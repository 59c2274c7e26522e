"""The budget of a compression: one type for all methods, checked when it is constructed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from aviot.utils.values import as_number, as_whole

# In floating point, T / r with r = T / K can exceed K by rounding, and its ceiling by one; the margin prevents that.
_ROUNDING = 1e-9

AUTO = "auto"


@dataclass(frozen=True)
class Budget:
    """A limit on the visual tokens that enter the decoder; exactly one of its fields is given.

    `ratio` is the number of tokens before compression over that after, above 1. `keep` is the share of tokens that
    stays, above 0 and at most 1. `supports` is a number of whole frames' tokens, `tokens` a number of tokens. A limit
    above the size of a video has no effect on it. For methods that act inside the decoder, where every token enters, it
    limits those that are left there.
    """

    ratio: float | None = None
    keep: float | None = None
    supports: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("ratio", "keep", "supports", "tokens") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a budget has exactly one of ratio, keep, supports and tokens, got {', '.join(given) or 'none'}"
            )
        (name,) = given
        check = {"ratio": _ratio, "keep": _share}.get(name, _count)
        object.__setattr__(self, name, check(name, getattr(self, name)))

    @classmethod
    def of(cls, value: "Budget | float | str") -> Self:
        """Return the budget of a ratio; a budget is returned unchanged."""
        if isinstance(value, cls):
            return value
        if value == AUTO:
            raise ValueError(f"budget {AUTO!r} is not available yet; give a ratio (4), or Budget(keep=0.25)")
        return cls(ratio=value)  # type: ignore[arg-type]  # text is refused as a ratio

    @property
    def label(self) -> str:
        """The budget in a few characters, for tables and names: `4`, `keep0.1`, `16supports`, `2048tokens`."""
        if self.ratio is not None:
            return f"{self.ratio:g}"
        return f"keep{self.keep:g}" if self.keep is not None else self._counted("")

    def __str__(self) -> str:
        if self.ratio is not None:
            return f"ratio {self.ratio:g}"
        return f"keep {self.keep:g}" if self.keep is not None else self._counted(" ")

    def _counted(self, separator: str) -> str:
        name = "supports" if self.supports is not None else "tokens"
        return f"{getattr(self, name)}{separator}{name}"

    @property
    def sort_key(self) -> tuple[float, ...]:
        """A key that orders budgets; different budgets have different keys."""
        return tuple(value or 0.0 for value in (self.ratio, self.keep, self.supports, self.tokens))

    def frames(self, frames: int, tokens_per_frame: int) -> int:
        """Return the number of supports for a video of this many frames; at least one.

        Raises ValueError for fewer tokens than one frame has, the least that a method on whole frames can return.
        """
        if self.supports is not None:
            return min(frames, self.supports)
        if self.tokens is not None:
            if self.tokens < tokens_per_frame:
                raise ValueError(
                    f"a budget of {self.tokens:,} tokens is less than one frame's {tokens_per_frame:,}; "
                    "give more, or choose a method that keeps parts of frames"
                )
            return min(frames, self.tokens // tokens_per_frame)
        return min(frames, max(1, math.ceil(frames / self._factor - _ROUNDING)))

    def count(self, frames: int, tokens_per_frame: int) -> int:
        """Return the number of tokens for a video of this many frames; at least one."""
        before = frames * tokens_per_frame
        if self.tokens is not None:
            return min(before, self.tokens)
        if self.supports is not None:
            return min(before, self.supports * tokens_per_frame)
        return min(before, max(1, math.ceil(before / self._factor - _ROUNDING)))

    @property
    def _factor(self) -> float:
        return self.ratio if self.ratio is not None else 1 / (self.keep or 1.0)


def support_count(frames: int, ratio: float) -> int:
    """Return K = min(T, max(1, ceil(T / r)))."""
    return Budget(ratio=ratio).frames(frames, 1)


def one_per_prompt(budget: Budget | float | Sequence[Budget | float], prompts: int) -> tuple[Budget, ...]:
    """Return the budget of each prompt, given one for all or one per prompt."""
    budgets = tuple(map(Budget.of, budget if isinstance(budget, Sequence) else (budget,) * prompts))
    if len(budgets) != prompts:
        raise ValueError(f"give one ratio, or one per prompt: got {len(budgets)} ratios and {prompts} prompts")
    return budgets


def _ratio(name: str, value: Any) -> float:
    number = as_number(value)
    if number is None or not number > 1:
        raise ValueError(f"{name} must be a finite number above 1 (4.0 keeps a quarter of the frames), got {value!r}")
    return number


def _share(name: str, value: Any) -> float:
    number = as_number(value)
    if number is None or not 0 < number <= 1:
        raise ValueError(f"{name} must be a share above 0 and at most 1 (0.25 keeps a quarter), got {value!r}")
    return number


def _count(name: str, value: Any) -> int:
    count = as_whole(value)
    if count is None or count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return count
