"""Validation of configuration values: numbers of any library become Python's own, with clear error messages."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_args

T = TypeVar("T")


def as_whole(value: object) -> int | None:
    """Return an integer, also of NumPy or a 0-d tensor, as a Python int; None for anything else, booleans included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return None


def as_number(value: object) -> float | None:
    """Return a finite number, also of NumPy or a 0-d tensor, as a Python float; None for anything else."""
    if isinstance(value, bool | str | bytes):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return number if math.isfinite(number) else None


def require_whole(config: object, *names: str, most: int | None = None) -> None:
    """Check that fields are integers of at least one and at most `most`, and store them as Python ints."""
    for name in names:
        value = as_whole(getattr(config, name))
        if value is None or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {getattr(config, name)!r}")
        if most is not None and value > most:
            raise ValueError(f"{name} must be at most {most:,}, got {value:,}")
        object.__setattr__(config, name, value)


def _require(config: object, name: str, requirement: str, holds: Callable[[float], bool]) -> None:
    value = as_number(getattr(config, name))
    if value is None or not holds(value):
        raise ValueError(f"{name} must {requirement}, got {getattr(config, name)!r}")
    object.__setattr__(config, name, value)


def require_positive(config: object, *names: str) -> None:
    """Check that fields are positive numbers, and store them as Python floats."""
    for name in names:
        _require(config, name, "be a positive number", lambda value: value > 0)


def require_finite(config: object, *names: str) -> None:
    """Check that fields are finite numbers, and store them as Python floats."""
    for name in names:
        _require(config, name, "be a finite number", lambda value: True)


def require_fraction(config: object, *names: str) -> None:
    """Check that fields lie in [0, 1], and store them as Python floats."""
    for name in names:
        _require(config, name, "lie in [0, 1]", lambda value: 0 <= value <= 1)


def numbers(name: str, values: tuple[Any, ...], requirement: str, holds: Callable[[float], bool]) -> tuple[float, ...]:
    """Return numbers as a tuple of floats; ValueError unless all meet a requirement."""
    found = [as_number(value) for value in values]
    if any(number is None or not holds(number) for number in found):
        raise ValueError(f"{name} must {requirement}, got {values}")
    return tuple(number for number in found if number is not None)


def require_choice(config: object, name: str, choices: Any) -> None:
    """Check that a field is one of the values of a Literal."""
    value = getattr(config, name)
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")


def counts(name: str, values: Any) -> tuple[int, ...]:
    """Return positive integers as a tuple; ValueError for anything else."""
    found = [as_whole(value) for value in as_tuple(name, values)]
    if any(count is None or count < 1 for count in found):
        raise ValueError(f"{name} must hold positive whole numbers, got {values}")
    return tuple(count for count in found if count is not None)


def as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    """Return any iterable but text as a tuple; ValueError for anything else."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a tuple, got {value!r}")
    return tuple(value)


def from_mapping(cls: type[T], values: Any, name: str) -> T:
    """Return a dataclass of a mapping's values; ValueError that names any unknown key."""
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a {cls.__name__} or a mapping of its fields, got {values!r}")
    unknown = sorted(map(str, set(values) - set(known)))
    if unknown:
        raise ValueError(f"{name} has no field {', '.join(map(repr, unknown))}; its fields are {', '.join(known)}")
    return cls(**values)
