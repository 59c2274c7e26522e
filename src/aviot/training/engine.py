"""How a run is spread over processes: replicas, FSDP2's shards, or DeepSpeed's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aviot.training.reading import read_yaml

Kind = Literal["replicas", "fsdp", "deepspeed"]


@dataclass(frozen=True)
class Engine:
    """A kind of parallelism and its library's own settings."""

    kind: Kind = "replicas"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Short, and different where optimizer states are kept differently."""
        if self.kind != "deepspeed":
            return self.kind
        return f"zero{self.settings['zero_optimization']['stage']}"

    def arguments(self) -> dict[str, Any]:
        """For `TrainingArguments`."""
        if self.kind == "fsdp":
            return {"fsdp": True, "fsdp_config": dict(self.settings)}
        return {"deepspeed": dict(self.settings)} if self.kind == "deepspeed" else {}


def read_engine(path: str | None) -> Engine:
    """An engine's file: one of `fsdp:` and `deepspeed:` with settings below it. No file: replicas."""
    if path is None:
        return Engine()
    values = read_yaml(path)
    if len(values) != 1 or not set(values) <= {"fsdp", "deepspeed"}:
        raise ValueError(f"{path} must hold one key, fsdp or deepspeed, got {', '.join(map(str, values)) or 'none'}")
    ((kind, settings),) = values.items()
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: {kind} must be a mapping of its settings, got {settings!r}")
    zero = settings.get("zero_optimization")
    if kind == "deepspeed" and (not isinstance(zero, dict) or zero.get("stage") not in (1, 2, 3)):
        raise ValueError(f"{path}: deepspeed.zero_optimization.stage must be 1, 2 or 3")
    return Engine(kind, settings)  # type: ignore[arg-type]
