"""Everything about an evaluation that can be chosen, checked once."""

import warnings
from dataclasses import InitVar, asdict, dataclass, field
from pathlib import Path
from typing import Any

from aviot.backbones.loading import LoadOptions
from aviot.budget import AutoBudget, Budget, parse_budget
from aviot.evaluation.benchmarks.definitions import BY_NAME
from aviot.evaluation.endpoint import Endpoint
from aviot.evaluation.grounding.files import GROUNDING
from aviot.evaluation.item import Instructions
from aviot.methods import registry
from aviot.request import MAX_NEW_TOKENS, check_sampling, checkpoint_folder
from aviot.utils.files import check_folder
from aviot.utils.values import as_whole, require_whole
from aviot.video.checks import ReadLimits


def under_current_names(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row or a setting that version 0.1 wrote, which has its method as `compressor`, as it is written now."""
    if "compressor" not in values or "method" in values:
        return values
    return {"method" if name == "compressor" else name: value for name, value in values.items()}


@dataclass(frozen=True)
class Setting:
    """One way of compressing that every item is asked with.

    `other` is a budget that is not a ratio, as `parse_budget` reads it; without a ratio and another budget nothing is
    compressed.
    """

    method: str
    ratio: float | None
    other: str | None = None

    @classmethod
    def of(cls, method: str, budget: Budget | AutoBudget | None) -> "Setting":
        """Return the setting of a method and its budget; None: nothing is compressed."""
        if budget is None:
            return cls(method, None)
        if isinstance(budget, Budget) and budget.ratio is not None:
            return cls(method, budget.ratio)
        return cls(method, None, budget.text)

    @property
    def name(self) -> str:
        """The name in rows and tables: `aviot@4`, `aviot@keep0.1`, `none`."""
        if self.other is not None:
            return f"{self.method}@{parse_budget(self.other).label}"
        return self.method if self.ratio is None else f"{self.method}@{self.ratio:g}"

    @property
    def budget(self) -> Budget | AutoBudget:
        """The part of a video that the decoder reads."""
        if self.other is not None:
            return parse_budget(self.other)
        return Budget(keep=1.0) if self.ratio is None else Budget(ratio=self.ratio)

    @property
    def text(self) -> str:
        """The budget as `parse_budget` reads it."""
        return self.budget.text

    @property
    def record(self) -> dict[str, Any]:
        """The setting as manifests hold it."""
        return {name: value for name, value in asdict(self).items() if name != "other" or value is not None}


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The items of an evaluation, the checkpoint that answers them, and its settings.

    Without `ratios` and `budgets` the budget is the checkpoint's own.

    `batch` questions of a video go through the decoder at a time. One is the default since then no answer can depend
    on its neighbours; more is faster on a GPU. `benchmark` says whose records `items` holds. `limit` takes the
    first items only, and `by` names columns of the items that scores are reported by. `limits` are those of reading one
    video; they are no part of what a run is. `loading` is the type and quantisation of the weights. `base` is
    the place of an adapter's base model, if not the recorded one. `compressors` is the former name of `methods`.
    """

    items: Path
    model: Path
    out: Path
    videos: Path | None = None
    split: str | None = None
    ratios: tuple[float, ...] = ()
    budgets: tuple[Budget | AutoBudget, ...] = ()
    methods: tuple[str, ...] = (registry.DEFAULT,)
    sampling: dict[str, Any] = field(default_factory=dict)
    instructions: Instructions = field(default_factory=Instructions)
    max_new_tokens: int = MAX_NEW_TOKENS
    batch: int = 1
    seed: int = 0
    judge: Endpoint | None = None
    benchmark: str | None = None
    limit: int | None = None
    by: tuple[str, ...] = ()
    limits: ReadLimits = field(default_factory=ReadLimits)
    loading: LoadOptions = field(default_factory=LoadOptions)
    base: Path | None = None
    compressors: InitVar[tuple[str, ...] | None] = None

    def __post_init__(self, compressors: tuple[str, ...] | None) -> None:
        if compressors is not None:
            warnings.warn("EvaluationConfig(compressors=...) is called methods now", DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "methods", compressors)
        require_whole(self, "max_new_tokens", "batch", *(("limit",) if self.limit is not None else ()))
        if as_whole(self.seed) is None or self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, got {self.seed!r}")
        for ratio in self.ratios:
            Budget(ratio=ratio)
        for name in self.methods:
            registry.check_name(name)
        if self.benchmark is not None and self.benchmark not in (known := (*BY_NAME, *GROUNDING)):
            raise ValueError(f"benchmark must be one of {', '.join(known)}, got {self.benchmark!r}")
        if not self.methods:
            raise ValueError(f"methods must hold at least one of {', '.join(registry.names())}, got none")
        check_sampling(self.sampling)
        checkpoint_folder(self.model)
        check_folder(self.out, "the output must be a folder, new or the run's own")

    def settings(self, default: Budget) -> tuple[Setting, ...]:
        """Return every method under every budget, each once, in the order given; `default` is the checkpoint's."""
        chosen = (*(Budget(ratio=ratio) for ratio in self.ratios), *self.budgets) or (default,)
        found = [
            Setting.of(name, budget)
            for name in self.methods
            for budget in (chosen if registry.compresses(name) else (None,))
        ]
        settings = tuple(dict.fromkeys(found))
        names = [setting.name for setting in settings]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two budgets are both called {twice}; give some that differ in their first six digits")
        return settings
