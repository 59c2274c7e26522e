"""Everything about a training run that can be chosen, with the paper's values as defaults, checked once."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from aviot.data import DataConfig
from aviot.utils.values import (
    as_tuple,
    as_whole,
    from_mapping,
    numbers,
    require_choice,
    require_fraction,
    require_positive,
    require_whole,
)

Stage = Literal["joint", "compressor"]
Precision = Literal["bf16", "float32"]


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """AdamW with a cosine schedule (supplement, "Training Schedule and Model Components").

    `global_batch` examples make an optimizer step, however many processes there are; each works through its part
    `micro_batch` at a time. The paper gives neither betas nor a bound on the gradient's norm: these are
    the Trainer's own, as in the training it builds on.
    """

    steps: int = 10_903
    global_batch: int = 128
    micro_batch: int = 1
    learning_rate: float = 1e-5
    warmup: float = 0.03  # of the steps
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    max_gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        require_whole(self, "steps", "global_batch", "micro_batch")
        require_positive(self, "learning_rate", "max_gradient_norm")
        require_fraction(self, "warmup", "weight_decay")
        betas = numbers("betas", as_tuple("betas", self.betas), "lie in [0, 1)", lambda beta: 0 <= beta < 1)
        if len(betas) != 2:
            raise ValueError(f"betas must be two numbers, got {self.betas}")
        object.__setattr__(self, "betas", betas)


@dataclass(frozen=True, kw_only=True)
class VideoConfig:
    """How videos are sampled; evaluation at the same setting is the paper's."""

    fps: float = 2.0
    max_frames: int = 224

    def __post_init__(self) -> None:
        require_positive(self, "fps")
        require_whole(self, "max_frames")


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters on the decoder's linear maps, which are themselves left as they are."""

    rank: int = 64
    alpha: float = 128.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

    def __post_init__(self) -> None:
        require_whole(self, "rank")
        require_positive(self, "alpha")
        require_fraction(self, "dropout")
        targets = as_tuple("targets", self.targets)
        if not targets or not all(isinstance(target, str) for target in targets):
            raise ValueError(f"targets must name the decoder's linear maps, such as q_proj, got {self.targets!r}")
        object.__setattr__(self, "targets", targets)


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Processes that decode ahead of the step, and how many micro batches each keeps ready. 0: the trainer decodes."""

    workers: int = 8
    ahead: int = 2

    def __post_init__(self) -> None:
        require_whole(self, "ahead")
        workers = as_whole(self.workers)
        if workers is None or workers < 0:
            raise ValueError(f"workers must be a whole number of at least 0, got {self.workers!r}")


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Where features of the frozen encoder are kept between epochs and runs, and how much of them."""

    folder: str
    gigabytes: float = 1000.0

    def __post_init__(self) -> None:
        require_path(self, "folder")
        require_positive(self, "gigabytes")


@dataclass(frozen=True, kw_only=True)
class SavingConfig:
    """A checkpoint every so many steps and at the end; the newest are kept."""

    every: int = 500
    keep: int = 3

    def __post_init__(self) -> None:
        require_whole(self, "every", "keep")


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """How often a line is logged, beside the first and the last step, and to which trackers.

    `report_to` takes the names of the Trainer's `report_to`: one, a list, or "none".
    """

    every: int = 10
    report_to: tuple[str, ...] = ("tensorboard",)

    def __post_init__(self) -> None:
        require_whole(self, "every")
        given = (self.report_to,) if isinstance(self.report_to, str) else self.report_to
        names = as_tuple("report_to", () if given is None else given)
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"report_to must be names of trackers, such as wandb, or none, got {self.report_to!r}")
        object.__setattr__(self, "report_to", tuple(name for name in names if name != "none"))


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Records that are not trained on: their loss is measured every so many steps, and at the last one.

    `records` and `video_root` are as in `data` (`video_root` None: that of `data`). `limit` is the number of examples
    (None: all); which ones follows from the seed.
    """

    records: str
    video_root: str | None = None
    every: int = 500
    limit: int | None = None

    def __post_init__(self) -> None:
        require_path(self, "records")
        require_whole(self, "every")
        if self.video_root is not None:
            require_path(self, "video_root")
        if self.limit is not None:
            require_whole(self, "limit")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """A run: what is trained, on what, how, and where it goes.

    `model` is the checkpoint to start from, `output` the run's folder. `stage` is "joint", everything but the vision
    encoder, or "compressor", the compressor with its position and question projections alone. `engine` names a file
    that says how the run is spread over processes (None: every process holds all of it). `seed` decides the
    order of the data, the ratios, and what torch draws.
    """

    model: str
    output: str
    data: DataConfig
    stage: Stage = "joint"
    precision: Precision = "bf16"
    seed: int = 0
    gradient_checkpointing: bool = True
    engine: str | None = None
    lora: LoraSettings | None = None
    cache: CacheConfig | None = None
    held_out: HeldOutConfig | None = None
    video: VideoConfig = field(default_factory=VideoConfig)
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    saving: SavingConfig = field(default_factory=SavingConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)

    def __post_init__(self) -> None:
        require_path(self, "model", "output")
        require_choice(self, "stage", Stage)
        require_choice(self, "precision", Precision)
        if self.engine is not None:
            require_path(self, "engine")
        if not isinstance(self.gradient_checkpointing, bool):
            raise ValueError(f"gradient_checkpointing must be true or false, got {self.gradient_checkpointing!r}")
        if self.lora is not None and self.stage == "compressor":
            raise ValueError('lora adapts the decoder, which stage "compressor" does not train; leave one of them out')

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """A config from plain values, naming any key that it does not know."""
        values = dict(values)
        data = _mapping(values.get("data"), "data")
        if "seed" in data:
            raise ValueError("data.seed follows from seed; leave it out and set seed")
        values["data"] = from_mapping(DataConfig, data | {"seed": values.get("seed", cls.seed)}, "data")
        if isinstance(values.get("held_out"), str):
            values["held_out"] = {"records": values["held_out"]}
        for name, group in _GROUPS.items():
            if values.get(name) is not None:
                values[name] = from_mapping(group, _mapping(values[name], name), name)
        for name in ("model", "output"):
            if name not in values:
                raise ValueError(f"{name} is missing; add {name}: PATH to the file, or --set {name}=PATH")
        return from_mapping(cls, values, "the configuration")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for YAML and JSON; `from_dict` reads them back."""
        values: dict[str, Any] = asdict(self)
        del values["data"]["seed"]
        return {name: _plain(value) for name, value in values.items()}


_GROUPS: Mapping[str, type] = {
    "lora": LoraSettings,
    "cache": CacheConfig,
    "held_out": HeldOutConfig,
    "video": VideoConfig,
    "optimization": OptimizationConfig,
    "loader": LoaderConfig,
    "saving": SavingConfig,
    "logging": LoggingConfig,
}


def require_path(config: object, *names: str) -> None:
    """Check that fields are paths, and store them as text."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, str | Path) or not str(value):
            raise ValueError(f"{name} must be a path, got {value!r}")
        object.__setattr__(config, name, str(value))


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping of its settings, got {value!r}")
    return dict(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value
