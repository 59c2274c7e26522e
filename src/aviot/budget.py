"""Budgets: a limit on a compression's tokens, and one that is chosen for each question; checked when constructed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from aviot.utils.values import as_number, as_whole

# In floating point, T / r with r = T / K can exceed K by rounding, and its ceiling by one; the margin prevents that.
_ROUNDING = 1e-9

AUTO = "auto"
"""The name of the budget that is chosen for each question, `AutoBudget()`."""

DEFAULT_QUALITY = 0.9
"""The least probability of an accepted answer for models without a calibration.

A first examination of the demo model on 603 questions lost half a point with it (docs/log.md, 2026-11-19)."""


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
    def of(cls, value: "Budget | AutoBudget | float | str") -> Self:
        """Return the budget of a ratio; a budget is returned unchanged."""
        if isinstance(value, cls):
            return value
        if value == AUTO or isinstance(value, AutoBudget):
            raise ValueError(
                f"budget {AUTO!r} is chosen by how sure an answer is, and here nothing is answered; "
                "give a ratio (4), or Budget(keep=0.25)"
            )
        return cls(ratio=value)  # type: ignore[arg-type]  # text is refused as a ratio

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the budget that a text names: `4` (a ratio), `keep=0.25`, `supports=16` or `tokens=2048`."""
        name, separator, number = text.partition("=")
        kind, value = (name.strip(), number) if separator else ("ratio", text)
        try:
            parsed: Any = {"ratio": float, "keep": float, "supports": int, "tokens": int}[kind](value)
        except (KeyError, ValueError):
            raise ValueError(
                f"a budget must be a ratio (4), keep=0.25, supports=16 or tokens=2048 (or {AUTO}, where answers are "
                f"given), got {text!r}"
            ) from None
        return cls(**{kind: parsed})

    @property
    def text(self) -> str:
        """The budget as `parse` reads it."""
        ((name, value),) = ((name, value) for name, value in vars(self).items() if value is not None)
        return _exact(value) if name == "ratio" else f"{name}={_exact(value)}"

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
        """The number of tokens before compression over that after, of a ratio or a share."""
        return self.ratio if self.ratio is not None else 1 / (self.keep or 1.0)


@dataclass(frozen=True)
class AutoBudget:
    """A budget that is chosen for each question by how sure its answer is.

    The question is asked under `min`, the smallest budget. If the probability of the answer is below `quality`, it is
    asked again under the next budget of `between`, and at last under `max`, whose answer is accepted whatever its
    probability. `quality` lies from 0 (always `min`) to 1 (nearly always `max`); None stands for the model's own,
    calibrated on held-out questions, or DEFAULT_QUALITY if it has none. `total` limits the tokens that questions which
    are asked together read in all; the least sure ones are asked again first.
    """

    min: Budget = field(default_factory=lambda: Budget(ratio=10))
    max: Budget = field(default_factory=lambda: Budget(ratio=2))
    between: tuple[Budget, ...] = ()
    quality: float | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        if self.total is not None:
            object.__setattr__(self, "total", _count("total", self.total))
        for name in ("min", "max"):
            object.__setattr__(self, name, Budget.of(getattr(self, name)))
        object.__setattr__(self, "between", tuple(map(Budget.of, self.between)))
        if self.quality is not None:
            number = as_number(self.quality)
            if number is None or not 0 <= number <= 1:
                raise ValueError(
                    f"quality must be a probability from 0 to 1 (0.9 asks again below it), got {self.quality!r}"
                )
            object.__setattr__(self, "quality", number)
        for smaller, larger in pairwise(self.budgets):
            if not _may_be_smaller(smaller, larger):
                raise ValueError(
                    f"an automatic budget goes from small to large, got {smaller} and then {larger}; "
                    "a higher ratio keeps fewer tokens"
                )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets in the order in which they are tried."""
        return self.min, *self.between, self.max

    def steps(self, frames: int, tokens_per_frame: int) -> tuple[Budget, ...]:
        """Return the budgets that differ for a video of this many frames, from the smallest to the largest."""
        found: dict[int, Budget] = {}
        for budget in self.budgets:
            count = budget.count(frames, tokens_per_frame)
            if not found or count > max(found):
                found[count] = budget
        return tuple(found.values())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the budget of a text: `auto`, or `auto:min=20,max=2,quality=0.95`, each part optional.

        `min` and `max` are ratios, or shares to keep as in `min=keep=0.05`.
        """
        head, _, rest = text.partition(":")
        chosen: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in rest.split(","))):
            name, separator, value = part.partition("=")
            if head.strip() != AUTO or not separator or name not in ("min", "max", "quality"):
                raise ValueError(
                    f"an automatic budget is written {AUTO}, or {AUTO}:min=10,max=2,quality=0.9, got {text!r}"
                )
            chosen[name] = _quality(value) if name == "quality" else Budget.parse(value)
        return cls(**chosen)

    @property
    def text(self) -> str:
        """The budget as `parse` reads it; budgets in between are not part of it."""
        default = type(self)()
        parts = [
            f"{name}={getattr(self, name).text}" for name in ("min", "max") if vars(self)[name] != vars(default)[name]
        ]
        parts += [] if self.quality is None else [f"quality={_exact(self.quality)}"]
        return AUTO + (":" + ",".join(parts) if parts else "")

    @property
    def label(self) -> str:
        """The budget in a few characters, for tables and names."""
        return self.text.replace(":", "-").replace(",", "-").replace("=", "")

    def __str__(self) -> str:
        quality = "" if self.quality is None else f", quality {self.quality:g}"
        return f"{AUTO} ({' then '.join(map(str, self.budgets))}{quality})"


def as_budget(value: "Budget | AutoBudget | float | str") -> "Budget | AutoBudget":
    """Return the budget of a request: a fixed one, or one that is chosen by how sure the answer is."""
    if isinstance(value, AutoBudget):
        return value
    return AutoBudget() if value == AUTO else Budget.of(value)


def parse_budget(text: str) -> "Budget | AutoBudget":
    """Return the budget that a text names, such as `4`, `keep=0.1`, `tokens=2048` or `auto:quality=0.95`."""
    return AutoBudget.parse(text) if text.partition(":")[0].strip() == AUTO else Budget.parse(text)


def support_count(frames: int, ratio: float) -> int:
    """Return K = min(T, max(1, ceil(T / r)))."""
    return Budget(ratio=ratio).frames(frames, 1)


def one_per_prompt(budget: Budget | float | Sequence[Budget | float], prompts: int) -> tuple[Budget, ...]:
    """Return the budget of each prompt, given one for all or one per prompt."""
    budgets = tuple(map(Budget.of, budget if isinstance(budget, Sequence) else (budget,) * prompts))
    if len(budgets) != prompts:
        raise ValueError(f"give one ratio, or one per prompt: got {len(budgets)} ratios and {prompts} prompts")
    return budgets


def _exact(value: float) -> str:
    """Return a number in the shortest form that reads back as the same number."""
    short = f"{value:g}"
    return short if isinstance(value, float) and float(short) == value else repr(value)


def _may_be_smaller(smaller: Budget, larger: Budget) -> bool:
    """Return whether one budget is below another; budgets of two kinds compare only when a video is known."""
    if smaller.tokens is not None and larger.tokens is not None:
        return smaller.tokens < larger.tokens
    if smaller.supports is not None and larger.supports is not None:
        return smaller.supports < larger.supports
    shares = [budget.ratio or (1 / budget.keep if budget.keep else None) for budget in (smaller, larger)]
    return shares[0] is None or shares[1] is None or shares[0] > shares[1]


def _quality(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # refused with the text in the message


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
