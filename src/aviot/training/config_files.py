"""YAML files of a run: its configuration, with changes applied, and its parallelism."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from aviot.data.checks import unique_keys_loader
from aviot.training.config import MissingSetting, TrainingConfig
from aviot.utils.files import write_durably

ParallelismKind = Literal["replicas", "fsdp", "deepspeed"]
MAX_VALUES = 100_000
"""Largest number of values in a configuration; aliases can make billions of ten lines."""


class ChangeError(ValueError):
    """A KEY=VALUE change that cannot be applied; the message starts with the change."""


@dataclass(frozen=True)
class Parallelism:
    """A kind of parallelism, with the settings of the library that implements it."""

    kind: ParallelismKind = "replicas"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return a short name; parallelisms of different names store optimizer states differently."""
        if self.kind != "deepspeed":
            return self.kind
        return f"zero{self.settings['zero_optimization']['stage']}"

    def arguments(self) -> dict[str, Any]:
        """Return its keyword arguments of `TrainingArguments`."""
        if self.kind == "fsdp":
            return {"fsdp": True, "fsdp_config": dict(self.settings)}
        return {"deepspeed": dict(self.settings)} if self.kind == "deepspeed" else {}


def read_config(path: str | Path, changes: Sequence[str] = ()) -> TrainingConfig:
    """Read a run's configuration and apply changes of the form KEY=VALUE, such as optimization.steps=20."""
    values = read_yaml(path)
    for change in changes:
        _apply(values, change)
    try:
        return TrainingConfig.from_dict(values)
    except MissingSetting as error:
        raise MissingSetting(error.name, path) from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def read_parallelism(path: str | None) -> Parallelism:
    """Read a parallelism file: one key, `fsdp` or `deepspeed`, with settings below it. None gives replicas."""
    if path is None:
        return Parallelism()
    values = read_yaml(path)
    if len(values) != 1 or not set(values) <= {"fsdp", "deepspeed"}:
        raise ValueError(f"{path} must hold one key, fsdp or deepspeed, got {', '.join(map(str, values)) or 'none'}")
    ((kind, settings),) = values.items()
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: {kind} must be a mapping of its settings, got {settings!r}")
    zero = settings.get("zero_optimization")
    if kind == "deepspeed" and (not isinstance(zero, dict) or zero.get("stage") not in (1, 2, 3)):
        raise ValueError(f"{path}: deepspeed.zero_optimization.stage must be 1, 2 or 3")
    return Parallelism(kind, settings)  # type: ignore[arg-type]


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); expected a YAML file, see configs/") from error
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a mapping of settings, got {type(values).__name__}; see configs/")
    return values


def parse_yaml(text: str, name: str) -> Any:
    """Return the plain values of YAML text; `name` identifies it in errors."""
    import yaml

    try:
        values = yaml.load(text, _loader())
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{name} is not YAML of plain values: {error}") from error
    if _expands_beyond(MAX_VALUES, values):
        raise ValueError(f"{name} expands to more than {MAX_VALUES:,} values; write its aliases (*name) out")
    return values


def _expands_beyond(most: int, values: Any) -> bool:
    """Return whether there are more than `most` values, each counted wherever an alias repeats it."""
    waiting, count = [values], 0
    while waiting and count <= most:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple | set):
            waiting += value
    return count + len(waiting) > most


def write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    """Write settings to a file that `read_config` reads back."""
    import yaml

    write_durably(path, yaml.safe_dump(dict(values), sort_keys=False).encode())


@cache
def _loader() -> Any:
    """Return a safe loader class that rejects repeated keys and reads 1e-5, a string in YAML 1.1, as a number."""

    class Loader(unique_keys_loader()):  # type: ignore[misc]
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    return Loader


def _apply(values: dict[str, Any], change: str) -> None:
    """Set one key of nested mappings; dots separate groups from their settings."""
    key, separator, text = change.partition("=")
    names = key.split(".")
    if not separator or not all(names):
        raise ChangeError(f"{change}: expected KEY=VALUE, such as optimization.steps=20")
    for name in names[:-1]:
        inner = values.setdefault(name, {})
        if inner is None:
            inner = values[name] = {}
        if not isinstance(inner, dict):
            raise ChangeError(f"{change}: {name} is {inner!r} in the file and has no settings of its own")
        values = inner
    try:
        values[names[-1]] = parse_yaml(text, change)
    except ValueError as error:
        raise ChangeError(str(error)) from error
