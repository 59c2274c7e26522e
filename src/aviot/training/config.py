"""All settings of a training run, checked when they are made; the defaults are the paper's."""

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from aviot.backbones.checkpoints.lora import LoraSettings as LoraSettings  # other packages import it from here
from aviot.config import CompressorConfig
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

TRACKERS: dict[str, tuple[str, ...]] = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub", "mlflow"),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": (),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
"""Names of the Trainer's `report_to`, and the modules that each imports."""

PACKAGES = {"azureml": "azureml-core mlflow azureml-mlflow", "comet_ml": "comet-ml"}
"""Names for pip of modules whose package is named differently."""


class MissingSetting(ValueError):
    """A setting without a default that the configuration does not have; `name` is its key."""

    def __init__(self, name: str, file: str | Path | None = None) -> None:
        self.name = name
        where = "" if file is None else f"{file}: "
        super().__init__(f"{where}{name} is missing; add {name}: PATH to the configuration")


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """Settings of AdamW with a cosine schedule (supplement, "Training Schedule and Model Components").

    An optimizer step takes `global_batch` examples over all processes, each of which computes `micro_batch` at a time.
    The paper gives neither the betas nor the gradient clipping norm: the defaults are those of Hugging Face's Trainer.
    """

    steps: int = 10_903
    global_batch: int = 128
    micro_batch: int = 1
    learning_rate: float = 1e-5
    warmup: float = 0.03  # share of the steps
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
    """Frame sampling of the videos; the paper evaluates at the same setting."""

    fps: float = 2.0
    max_frames: int = 224

    def __post_init__(self) -> None:
        require_positive(self, "fps")
        require_whole(self, "max_frames")


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Settings of the data loader.

    `workers` processes decode videos (0: the training process does), each `ahead` micro batches in advance.
    """

    workers: int = 8
    ahead: int = 2

    def __post_init__(self) -> None:
        require_whole(self, "ahead")
        workers = as_whole(self.workers)
        if workers is None or workers < 0:
            raise ValueError(f"workers must be a whole number of at least 0, got {self.workers!r}")


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Directory and size limit of the cache of the frozen encoder's features, shared by epochs and runs."""

    folder: str
    gigabytes: float = 1000.0

    def __post_init__(self) -> None:
        require_path(self, "folder")
        require_positive(self, "gigabytes")


@dataclass(frozen=True, kw_only=True)
class SavingConfig:
    """Checkpoint interval in steps (the last step always has one), and how many of the newest checkpoints to keep."""

    every: int = 500
    keep: int = 3

    def __post_init__(self) -> None:
        require_whole(self, "every", "keep")


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """Logging interval in steps (the first and the last step are always logged), and the experiment trackers.

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
    """Records that are not trained on; their loss is measured every `every` steps and at the last step.

    `records` and `video_root` are as in `data` (`video_root` None: that of `data`). `limit` is the number of examples
    (None: all), which the seed selects.
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
    """The configuration of a training run.

    `model` is the checkpoint to start from, `output` the run folder. `stage` selects the trained weights: "joint" is
    everything but the vision encoder, "compressor" only the compressor with its position and question projections.
    `parallelism` names a file that configures FSDP2 or DeepSpeed (None: every process holds a replica of the model).
    `seed` determines the order of the data, the ratios, and torch's random numbers. `compressor` has settings of
    `CompressorConfig` for a model without one of its own, and switches (`aviot.config.SWITCHES`) for a model with one.
    """

    model: str
    output: str
    data: DataConfig
    stage: Stage = "joint"
    precision: Precision = "bf16"
    seed: int = 0
    gradient_checkpointing: bool = True
    parallelism: str | None = None
    lora: LoraSettings | None = None
    compressor: dict[str, Any] | None = None
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
        if self.parallelism is not None:
            require_path(self, "parallelism")
        if not isinstance(self.gradient_checkpointing, bool):
            raise ValueError(f"gradient_checkpointing must be true or false, got {self.gradient_checkpointing!r}")
        if self.compressor is not None:
            _check_compressor(self.compressor)
        if self.lora is not None and self.stage == "compressor":
            raise ValueError('lora adapts the decoder, which stage "compressor" does not train; remove one of them')

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """Return a configuration from plain values; unknown keys, missing and wrong values raise ValueError."""
        values = dict(values)
        if "engine" in values:
            values = _renamed(values, "engine", "parallelism")
        data = _mapping(values.get("data"), "data")
        if "seed" in data:
            raise ValueError("data.seed follows from seed; remove it and set seed")
        values["data"] = from_mapping(DataConfig, data | {"seed": values.get("seed", cls.seed)}, "data")
        if isinstance(values.get("held_out"), str):
            values["held_out"] = {"records": values["held_out"]}
        for name, group in _GROUPS.items():
            if values.get(name) is not None:
                values[name] = from_mapping(group, _mapping(values[name], name), name)
        for name in ("model", "output"):
            if name not in values:
                raise MissingSetting(name)
        return from_mapping(cls, values, "the configuration")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for YAML and JSON, which `from_dict` reads back."""
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


def require_trackers(names: Sequence[str]) -> None:
    """Raise ValueError for an experiment tracker that is unknown or not installed."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(
                f"logging.report_to must be none or some of {', '.join(TRACKERS)}, got {name!r}; correct the name, or "
                "set logging.report_to=none"
            )
        for module in TRACKERS[name]:
            if importlib.util.find_spec(module) is None:
                raise ValueError(
                    f"logging.report_to is {name}, which needs the package {module}, and that is not installed; "
                    f"pip install {PACKAGES.get(module, module)}, or set logging.report_to=none"
                )


def require_path(config: object, *names: str) -> None:
    """Check that fields are paths, and store them as strings."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, str | Path) or not str(value):
            raise ValueError(f"{name} must be a path, got {value!r}")
        object.__setattr__(config, name, str(value))


def _check_compressor(values: Any) -> None:
    """Raise ValueError for wrong settings of a compressor, and for those that follow from the model and the video."""
    derived = sorted({"dim", "grid"} & set(_mapping(values, "compressor")))
    if derived:
        raise ValueError(f"compressor.{derived[0]} follows from the model and the video; leave it out")
    try:
        CompressorConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"compressor: {error}") from error


def _renamed(values: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return settings of which one has its name of an earlier version, with a warning."""
    if new in values:
        raise ValueError(f"{old} is the former name of {new}; give {new} alone")
    warnings.warn(f"the setting {old} is called {new} now", DeprecationWarning, stacklevel=4)
    return {new if name == old else name: value for name, value in values.items()}


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping of its settings, got {value!r}")
    return dict(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value
