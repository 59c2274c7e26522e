"""Every constant of the method, once, with the paper's value as its default.

A config is frozen and validated when it is made, so nothing downstream needs to check it again. Constants that belong
together form a group (`TransportConfig`, `AllocationConfig`, `GateConfig`, `PositionConfig`, `ObjectiveConfig`); what a
user is likely to change sits on `CompressorConfig` itself.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args

T = TypeVar("T")

TRAINING_RATIOS = tuple(2 + 0.5 * i for i in range(17))  # 2, 2.5, ..., 10, one drawn uniformly for every example

Fusion = Literal["adaptive", "equal"]
Pilot = Literal["balanced", "unbalanced"]
Granularities = Literal["all", "global"]


@dataclass(frozen=True, kw_only=True)
class TransportConfig:
    """The finite-step log-domain solver (supplement, "Numerical OT Construction")."""

    updates: int = 20
    source_relaxation: float = 0.5  # rho_s
    target_relaxation: float = 5.0  # rho_t
    cost_bound: float = 100.0  # the largest scaled cost, in units of epsilon
    stabilizer: float = 1e-8  # delta, in the cost scale and the barycentric update

    def __post_init__(self) -> None:
        _positive(self, "updates", "source_relaxation", "target_relaxation", "cost_bound", "stabilizer")


@dataclass(frozen=True, kw_only=True)
class AllocationConfig:
    """How segment signals become integer support budgets."""

    relevance_weight: float = 0.3  # alpha_q, after its warm-up
    initial_temperature: float = 1.0
    final_temperature: float = 0.1

    def __post_init__(self) -> None:
        _positive(self, "initial_temperature", "final_temperature")
        _finite(self, "relevance_weight")


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """The per-support, per-position fusion gate."""

    hidden: int = 32
    temperature: float = 0.05  # tau_g
    global_floor: float = 0.20  # delta_G

    def __post_init__(self) -> None:
        _positive(self, "hidden", "temperature")
        _fraction(self, "global_floor")


@dataclass(frozen=True, kw_only=True)
class PositionConfig:
    """The time-height-width Fourier residual and the encoding of region centres."""

    bands: int = 16
    temporal_scale: float = 1.0  # a_t
    spatial_scale: float = 0.5  # a_h = a_w
    region_bands: int = 8

    def __post_init__(self) -> None:
        _positive(self, "bands", "region_bands")
        _finite(self, "temporal_scale", "spatial_scale")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Weights and bounds of the stage objective; the temporal distortion has weight one."""

    regional_weight: float = 1.0
    continuity_weight: float = 0.01
    variation_weight: float = 0.001
    balance_weight: float = 0.5
    entropy_weight: float = 0.5
    continuity_scale: float = 0.20
    motion_scale: float = 0.20
    global_ceiling: float = 0.60
    regional_floor: float = 0.15
    entropy_floor: float = 0.85

    def __post_init__(self) -> None:
        _finite(self, *(f.name for f in fields(self)))
        _positive(self, "continuity_scale", "motion_scale")


@dataclass(frozen=True, kw_only=True)
class LevelConfig:
    """One granularity: its partition, its transport, and its place in the chain."""

    name: str
    regions: tuple[int, int]  # rows, columns
    epsilon: float
    rounds: int
    parent_weight: float  # beta; unused by the global level, which has no parent


@dataclass(frozen=True, kw_only=True)
class CompressorConfig:
    """What a `Compressor` is built from; the defaults are the paper's.

    `epsilons`, `rounds` and `parent_weights` hold one value a level (parent weights start at the second level, the
    first has no parent); a chain longer than the tuple repeats its last value.

    Ablation switches, each named for what it turns off:

    * `question_cost=False`: the question no longer weighs the transport cost;
    * `question_allocation=False`: the question's relevance no longer moves supports between segments;
    * `granularities="global"`: the whole frame's plan alone (`False` says the same, `True` is `"all"`);
    * `fusion="equal"`: every granularity weighs the same, the gate is not evaluated;
    * `pilot="unbalanced"`: a pilot whose marginals are relaxed, beside the printed `"balanced"` one.

    The no-query condition is no switch: call the compressor with `question=None`.
    """

    dim: int = 1152
    cost_dim: int = 256
    grid: tuple[int, int] = (27, 27)
    regions: tuple[tuple[int, int], ...] = ((1, 1), (3, 3), (9, 9))
    epsilons: tuple[float, ...] = (0.10, 0.12, 0.15)
    rounds: tuple[int, ...] = (5, 2, 1)
    parent_weights: tuple[float, ...] = (0.50, 0.25)
    segments: int = 4
    fractions: tuple[float, ...] = (0.75, 0.50, 0.25)  # intermediate cardinalities, as shares of T
    stage_multiple: int = 8  # intermediate cardinalities are multiples of it
    warmup_steps: int = 500

    question_cost: bool = True
    question_allocation: bool = True
    granularities: Granularities | bool = "all"
    fusion: Fusion = "adaptive"
    pilot: Pilot = "balanced"

    transport: TransportConfig = field(default_factory=TransportConfig)
    allocation: AllocationConfig = field(default_factory=AllocationConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    position: PositionConfig = field(default_factory=PositionConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        self._canonicalise()
        _positive(self, "dim", "cost_dim", "segments", "stage_multiple", "warmup_steps")
        if self.cost_dim % 2:
            raise ValueError(
                f"cost_dim must be even (the question's map has cost_dim/2 hidden units), got {self.cost_dim}"
            )
        _choice(self, "granularities", Granularities)
        _choice(self, "fusion", Fusion)
        _choice(self, "pilot", Pilot)
        for name in ("question_cost", "question_allocation"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        self._check_levels()
        for fraction in self.fractions:
            if not 0 < fraction < 1:
                raise ValueError(f"fractions must lie strictly between 0 and 1, got {self.fractions}")

    def _canonicalise(self) -> None:
        """Turn lists (as JSON gives them) into tuples, mappings into groups, and the switch's bool into its word."""
        put = object.__setattr__
        for name in ("grid", "epsilons", "rounds", "parent_weights", "fractions"):
            put(self, name, _as_tuple(name, getattr(self, name)))
        put(
            self,
            "regions",
            tuple(_as_tuple("each entry of regions", entry) for entry in _as_tuple("regions", self.regions)),
        )
        if isinstance(self.granularities, bool):
            put(self, "granularities", "all" if self.granularities else "global")
        for spec in fields(self):
            group = spec.default_factory
            if isinstance(group, type) and is_dataclass(group) and not isinstance(getattr(self, spec.name), group):
                put(self, spec.name, _from_mapping(group, getattr(self, spec.name), spec.name))

    def _check_levels(self) -> None:
        if len(self.grid) != 2 or any(not _is_count(side) for side in self.grid):
            raise ValueError(f"grid must be two positive whole numbers (rows, columns), got {self.grid}")
        if not self.regions or self.regions[0] != (1, 1):
            raise ValueError(f"regions must start with (1, 1), the whole frame, got {self.regions}")
        for cells in self.regions:
            if len(cells) != 2 or any(not _is_count(count) for count in cells):
                raise ValueError(f"each entry of regions must be (rows, columns), positive whole numbers, got {cells}")
            if any(count > side for count, side in zip(cells, self.grid, strict=True)):
                raise ValueError(
                    f"regions {cells} have more cells than the grid {self.grid} has patches along a side; use fewer"
                )
        for coarse, fine in pairwise(self.regions):
            if any(c > f for c, f in zip(coarse, fine, strict=True)) or coarse == fine:
                raise ValueError(f"regions must go from coarse to fine, but {fine} follows {coarse}; reorder them")
        for name in ("epsilons", "rounds") + (("parent_weights",) if len(self.regions) > 1 else ()):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; give one value a level, or leave it out for the paper's")
        if any(not (math.isfinite(epsilon) and epsilon > 0) for epsilon in self.epsilons):
            raise ValueError(f"epsilons must be positive, got {self.epsilons}")
        if any(not _is_count(count) for count in self.rounds):
            raise ValueError(f"rounds must be whole numbers of at least 1, got {self.rounds}")
        if any(not 0 <= weight <= 1 for weight in self.parent_weights):
            raise ValueError(f"parent_weights must lie in [0, 1], got {self.parent_weights}")

    @property
    def patches(self) -> int:
        """S, the patches of one frame."""
        return self.grid[0] * self.grid[1]

    @property
    def levels(self) -> tuple[LevelConfig, ...]:
        """The whole chain of granularities, coarse to fine (the ablation switch does not shorten it)."""
        return tuple(
            LevelConfig(
                name=name,
                regions=cells,
                epsilon=_at(self.epsilons, depth),
                rounds=_at(self.rounds, depth),
                parent_weight=_at(self.parent_weights, depth - 1) if depth else 0.0,
            )
            for depth, (name, cells) in enumerate(zip(level_names(self.regions), self.regions, strict=True))
        )

    @property
    def active_levels(self) -> tuple[LevelConfig, ...]:
        """The granularities that are solved: all of them, or the global one alone."""
        return self.levels if self.granularities == "all" else self.levels[:1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "CompressorConfig":
        """A config from plain values, naming any key it does not know."""
        return _from_mapping(cls, values, "CompressorConfig")


def level_names(regions: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    """Names of a chain's levels: the paper's for three, `global` and then `ROWSxCOLUMNS` for any other length."""
    if len(regions) == 3:
        return ("global", "medium", "local")
    return ("global", *(f"{rows}x{columns}" for rows, columns in regions[1:]))


def _at(values: tuple[T, ...], index: int) -> T:
    return values[min(index, len(values) - 1)]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        whole = next(isinstance(f.default, int) for f in fields(config) if f.name == name)  # type: ignore[arg-type]
        if whole and not _is_count(value):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not (_is_number(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value!r}")


def _finite(config: object, *names: str) -> None:
    for name in names:
        if not _is_number(getattr(config, name)):
            raise ValueError(f"{name} must be a finite number, got {getattr(config, name)!r}")


def _fraction(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (_is_number(value) and 0 <= value <= 1):
            raise ValueError(f"{name} must lie in [0, 1], got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _choice(config: object, name: str, choices: Any) -> None:
    value = getattr(config, name)
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a tuple, got {value!r}")
    return tuple(value)


def _from_mapping(cls: type[T], values: Any, name: str) -> T:
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a {cls.__name__} or a mapping of its fields, got {values!r}")
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{name} has no field {', '.join(map(repr, unknown))}; its fields are {', '.join(known)}")
    return cls(**values)
