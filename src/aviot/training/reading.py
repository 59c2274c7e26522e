"""Configuration files: YAML of plain values, with changes from the command line."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aviot.data.unique_keys import unique_keys_loader
from aviot.files import write_durably
from aviot.training.config import TrainingConfig

MOST_VALUES = 100_000
"""Values of a configuration, which sentences and `run.json` may repeat; aliases make billions of ten lines."""


def read_config(path: str | Path, changes: Sequence[str] = ()) -> TrainingConfig:
    """A run's configuration; each change is KEY=VALUE, with dots between a group and its setting."""
    values = read_yaml(path)
    for change in changes:
        _apply(values, change)
    try:
        return TrainingConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A file that holds a mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); expected a YAML file, see configs/") from error
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a mapping of settings, got {type(values).__name__}; see configs/")
    return values


def parse_yaml(text: str, name: str) -> Any:
    """Plain values of YAML text."""
    import yaml

    try:
        values = yaml.load(text, _loader())
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{name} is not YAML of plain values: {error}") from error
    if _unfolds_beyond(MOST_VALUES, values):
        raise ValueError(f"{name} unfolds to more than {MOST_VALUES:,} values; write out what its aliases (*name) mean")
    return values


def write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    """Settings as a file that `read_config` reads back."""
    import yaml

    write_durably(path, yaml.safe_dump(dict(values), sort_keys=False).encode())


@cache
def _loader() -> Any:
    """A safe loader that refuses a key said twice, and to which 1e-5 is a number, as everywhere but in YAML 1.1."""

    class Loader(unique_keys_loader()):  # type: ignore[misc]
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    return Loader


def _unfolds_beyond(most: int, values: Any) -> bool:
    """Return whether there are more values than `most`, each counted wherever an alias repeats it."""
    waiting, count = [values], 0
    while waiting and count <= most:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple | set):
            waiting += value
    return count + len(waiting) > most


def _apply(values: dict[str, Any], change: str) -> None:
    key, separator, text = change.partition("=")
    names = key.split(".")
    if not separator or not all(names):
        raise ValueError(f"--set takes KEY=VALUE, such as optimization.steps=20, got {change!r}")
    for name in names[:-1]:
        inner = values.setdefault(name, {})
        if inner is None:
            inner = values[name] = {}
        if not isinstance(inner, dict):
            raise ValueError(f"--set {change}: {name} is {inner!r} in the file and has no settings of its own")
        values = inner
    values[names[-1]] = parse_yaml(text, f"--set {change}")
