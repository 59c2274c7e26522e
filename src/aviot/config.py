"""All constants of AVIOT, with the paper's values as defaults.

A config is frozen and validated when it is constructed, so that no other code has to check it again. Constants that
belong together form a group (`TransportConfig`, `AllocationConfig`, `GateConfig`, `PositionConfig`, `ObjectiveConfig`);
those that a user is likely to change are fields of `CompressorConfig` itself.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeVar

from aviot.utils.values import (
    as_tuple,
    counts,
    from_mapping,
    numbers,
    require_choice,
    require_finite,
    require_fraction,
    require_positive,
    require_whole,
)

T = TypeVar("T")

TRAINING_RATIOS = tuple(2 + 0.5 * i for i in range(17))  # 2, 2.5, ..., 10; one is sampled uniformly per example

# Upper bounds, so that no config, even of an untrusted checkpoint, makes a compressor that needs unbounded time or
# memory. They are far above the paper's values, which the comments give.
MOST_UPDATES = 10_000  # 20; in float32 a plan converges in far fewer
MOST_ROUNDS = 1_000  # 5
MOST_SOLVES = 20_000  # updates in all rounds of one level: 100
MOST_LEVELS = 8  # 3
MOST_SIDE = 1_024  # 27 patches along a side of the grid
MOST_CHANNELS = 65_536  # 1152 channels of the encoder, 256 of the cost
MOST_HIDDEN = 65_536  # 32 hidden units of the gate
MOST_BANDS = 64  # 16; band b has the frequency 2^b, and float32 overflows near 2^128
MOST_SEGMENTS = 65_536  # 4; there are never more segments than frames
MOST_STAGES = 64  # 3 intermediate cardinalities
MOST_STEPS = 10**12  # 500 steps of warm-up

Fusion = Literal["adaptive", "equal"]
Pilot = Literal["balanced", "unbalanced"]
Allocation = Literal["printed", "calibrated"]
CostNormalization = Literal["printed", "unit"]

SWITCHES = (
    *("question_cost", "question_allocation", "granularities", "fusion", "pilot"),
    *("allocation", "cost_normalization"),
)
"""Ablation switches of `CompressorConfig`; none changes the weights."""
Granularities = Literal["all", "global"]


@dataclass(frozen=True, kw_only=True)
class TransportConfig:
    """The finite-step log-domain solver (supplement, "Numerical OT Construction")."""

    updates: int = 20
    source_relaxation: float = 0.5  # rho_s
    target_relaxation: float = 5.0  # rho_t
    cost_bound: float = 100.0  # the largest scaled cost, in units of epsilon
    stabilizer: float = 1e-8  # delta, in the cost scale and the barycentric update
    unit_cost: float = 32.0  # with cost_normalization="unit", of points that are one apart in every coordinate

    def __post_init__(self) -> None:
        require_whole(self, "updates", most=MOST_UPDATES)
        require_positive(self, "source_relaxation", "target_relaxation", "cost_bound", "stabilizer", "unit_cost")


@dataclass(frozen=True, kw_only=True)
class AllocationConfig:
    """The allocation of supports to segments.

    With the rule `"calibrated"` relevance counts only where it is evidence: where its range over a video's frames is
    not below `evidence_threshold`, which belongs to a model as the scale of its cosines does. None: not known yet.
    Training keeps it at the share `evidence_quantile` of questions, of which about the last 1 / `evidence_rate` count.
    """

    relevance_weight: float = 0.3  # alpha_q, after its warm-up
    initial_temperature: float = 1.0
    final_temperature: float = 0.1
    rule: Allocation = "printed"
    evidence_threshold: float | None = None
    evidence_quantile: float = 0.05
    evidence_rate: float = 0.001

    def __post_init__(self) -> None:
        require_positive(self, "initial_temperature", "final_temperature")
        require_finite(self, "relevance_weight")
        require_choice(self, "rule", Allocation)
        require_fraction(self, "evidence_quantile", "evidence_rate")
        if self.evidence_quantile == 0:
            raise ValueError("evidence_quantile must be above 0; with it at 0 relevance always counts, as printed")
        if self.evidence_threshold is not None:
            require_finite(self, "evidence_threshold")
            if self.evidence_threshold < 0:
                raise ValueError(
                    f"evidence_threshold must be at least 0, as a range is, or None, got {self.evidence_threshold}"
                )


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """The per-support, per-position fusion gate."""

    hidden: int = 32
    temperature: float = 0.05  # tau_g
    global_floor: float = 0.20  # delta_G

    def __post_init__(self) -> None:
        require_whole(self, "hidden", most=MOST_HIDDEN)
        require_positive(self, "temperature")
        require_fraction(self, "global_floor")


@dataclass(frozen=True, kw_only=True)
class PositionConfig:
    """The time-height-width Fourier residual and the encoding of region centres."""

    bands: int = 16
    temporal_scale: float = 1.0  # a_t
    spatial_scale: float = 0.5  # a_h = a_w
    region_bands: int = 8

    def __post_init__(self) -> None:
        require_whole(self, "bands", "region_bands", most=MOST_BANDS)
        require_finite(self, "temporal_scale", "spatial_scale")


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
        require_finite(self, *(f.name for f in fields(self)))
        require_positive(self, "continuity_scale", "motion_scale")


@dataclass(frozen=True, kw_only=True)
class LevelConfig:
    """One granularity: its partition, its transport, and the weight of its parent."""

    name: str
    regions: tuple[int, int]  # rows, columns
    epsilon: float
    rounds: int
    parent_weight: float  # beta; unused by the global level, which has no parent


@dataclass(frozen=True, kw_only=True)
class CompressorConfig:
    """The configuration of a `Compressor`; the defaults are the paper's.

    `epsilons`, `rounds` and `parent_weights` have one value per level (parent weights start at the second level, since
    the first has no parent); for further levels the last value is repeated.

    Ablation switches:

    * `question_cost=False`: the question does not weight the transport cost;
    * `question_allocation=False`: the question's relevance does not change the allocation of supports to segments;
    * `granularities="global"`: only the whole frame's plan (`False` is the same, `True` is `"all"`);
    * `fusion="equal"`: all granularities have equal weights, and the gate is not evaluated;
    * `pilot="unbalanced"`: a pilot with relaxed marginals, instead of the paper's `"balanced"` one;
    * `allocation="calibrated"`: relevance without evidence does not change the allocation, which as `"printed"` is as
      strong without as with it. Short for `AllocationConfig(rule="calibrated")`;
    * `cost_normalization="unit"`: weights of the cost are normalised, so that the question can only turn attention to
      coordinates and not scale all costs, which as `"printed"` the bound divides out again. For training.

    There is no switch for the no-query condition: call the compressor with `question=None`.
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
    cost_normalization: CostNormalization = "printed"

    transport: TransportConfig = field(default_factory=TransportConfig)
    allocation: AllocationConfig = field(default_factory=AllocationConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    position: PositionConfig = field(default_factory=PositionConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        self._canonicalise()
        require_whole(self, "dim", "cost_dim", most=MOST_CHANNELS)
        require_whole(self, "segments", "stage_multiple", most=MOST_SEGMENTS)
        require_whole(self, "warmup_steps", most=MOST_STEPS)
        if self.cost_dim % 2:
            raise ValueError(
                f"cost_dim must be even (the question's map has cost_dim/2 hidden units), got {self.cost_dim}"
            )
        require_choice(self, "granularities", Granularities)
        require_choice(self, "fusion", Fusion)
        require_choice(self, "pilot", Pilot)
        require_choice(self, "cost_normalization", CostNormalization)
        for name in ("question_cost", "question_allocation"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        self._check_levels()
        self._check_work()
        inside = numbers("fractions", self.fractions, "lie strictly between 0 and 1", lambda value: 0 < value < 1)
        if list(inside) != sorted(set(inside), reverse=True):
            raise ValueError(
                f"fractions must decrease, got {self.fractions}; each stage is smaller than the one before"
            )

    def _canonicalise(self) -> None:
        """Convert lists (from JSON) to tuples, mappings to groups, and the bool of `granularities` to its word."""
        put = object.__setattr__
        for name in ("epsilons", "parent_weights", "fractions"):
            put(self, name, _short(name, as_tuple(name, getattr(self, name))))
        for name in ("grid", "rounds"):
            put(self, name, counts(name, _short(name, as_tuple(name, getattr(self, name)))))
        cells = (
            counts("each entry of regions", entry) for entry in _short("regions", as_tuple("regions", self.regions))
        )
        put(self, "regions", tuple(cells))
        if isinstance(self.granularities, bool):
            put(self, "granularities", "all" if self.granularities else "global")
        allocation: Any = self.allocation
        if isinstance(allocation, str):
            put(self, "allocation", from_mapping(AllocationConfig, {"rule": allocation}, "allocation"))
        for spec in fields(self):
            group = spec.default_factory
            if isinstance(group, type) and is_dataclass(group) and not isinstance(getattr(self, spec.name), group):
                put(self, spec.name, from_mapping(group, getattr(self, spec.name), spec.name))

    def _check_levels(self) -> None:
        if len(self.grid) != 2:
            raise ValueError(f"grid must be two positive whole numbers (rows, columns), got {self.grid}")
        if not self.regions or self.regions[0] != (1, 1):
            raise ValueError(f"regions must start with (1, 1), the whole frame, got {self.regions}")
        for cells in self.regions:
            if len(cells) != 2:
                raise ValueError(f"each entry of regions must be (rows, columns), got {cells}")
            if any(count > side for count, side in zip(cells, self.grid, strict=True)):
                raise ValueError(
                    f"regions {cells} have more cells than the grid {self.grid} has patches along a side; give fewer "
                    "regions, or choose another method for frames as small as that"
                )
        for coarse, fine in pairwise(self.regions):
            per_patch = any(count == side for count, side in zip(fine, self.grid, strict=True))  # and cannot be finer
            if any(c > f for c, f in zip(coarse, fine, strict=True)) or (coarse == fine and not per_patch):
                raise ValueError(f"regions must go from coarse to fine, but {fine} follows {coarse}; reorder them")
        for name in ("epsilons", "rounds") + (("parent_weights",) if len(self.regions) > 1 else ()):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; give one value per level, or leave it out for the paper's")
        put = object.__setattr__
        put(self, "epsilons", numbers("epsilons", self.epsilons, "be positive", lambda value: value > 0))
        weights = numbers("parent_weights", self.parent_weights, "lie in [0, 1]", lambda value: 0 <= value <= 1)
        put(self, "parent_weights", weights)

    def _check_work(self) -> None:
        """Refuse sizes and rounds that would take unbounded time."""
        if max(self.grid) > MOST_SIDE:
            raise ValueError(f"grid must have at most {MOST_SIDE:,} patches along a side, got {self.grid}")
        if max(self.rounds) > MOST_ROUNDS:
            raise ValueError(f"rounds must hold at most {MOST_ROUNDS:,} each, got {max(self.rounds):,}")
        if (solves := max(self.rounds) * self.transport.updates) > MOST_SOLVES:
            raise ValueError(
                f"rounds times updates must be at most {MOST_SOLVES:,} per level, got {solves:,}; lower one of them"
            )

    @property
    def patches(self) -> int:
        """S, the number of patches per frame."""
        return self.grid[0] * self.grid[1]

    @property
    def levels(self) -> tuple[LevelConfig, ...]:
        """All granularities, coarse to fine, including those that `granularities="global"` leaves out."""
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
        """The granularities that are solved: all of them, or only the global one."""
        return self.levels if self.granularities == "all" else self.levels[:1]

    def switch(self, name: str) -> Any:
        """Return the value of an ablation switch; that of `allocation` is its rule."""
        value = getattr(self, name)
        return value.rule if isinstance(value, AllocationConfig) else value

    def switched(self, **switches: Any) -> "CompressorConfig":
        """Return the config with other ablation switches.

        For `allocation` a rule, or a mapping of some constants, leaves the other constants alone.
        """
        given = switches.get("allocation")
        if isinstance(given, str | Mapping):
            constants = asdict(self.allocation) | ({"rule": given} if isinstance(given, str) else dict(given))
            switches = switches | {"allocation": from_mapping(AllocationConfig, constants, "allocation")}
        return replace(self, **switches)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `from_dict` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "CompressorConfig":
        """Return a config with plain values; raise ValueError naming any unknown key."""
        return from_mapping(cls, values, "CompressorConfig")


def check_config(config: object) -> CompressorConfig:
    """Return the config; raise TypeError if it is not a CompressorConfig."""
    if not isinstance(config, CompressorConfig):
        raise TypeError(f"expected a CompressorConfig, got {type(config).__name__}; see CompressorConfig.from_dict")
    return config


def level_names(regions: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    """Return the names of levels: the paper's for three of them, otherwise `global` and then `ROWSxCOLUMNS`."""
    if len(regions) == 3:
        return ("global", "medium", "local")
    return ("global", *(f"{rows}x{columns}" for rows, columns in regions[1:]))


def _short(name: str, values: tuple[T, ...]) -> tuple[T, ...]:
    """Return the values; refuse more of them than there can be levels or stages."""
    most = MOST_STAGES if name == "fractions" else MOST_LEVELS
    if len(values) > most:
        raise ValueError(f"{name} must hold at most {most} values, got {len(values):,}")
    return values


def _at(values: tuple[T, ...], index: int) -> T:
    return values[min(index, len(values) - 1)]
