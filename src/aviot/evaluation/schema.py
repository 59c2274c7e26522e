"""Schema checks for JSON files of a run, which may have been edited since they were written."""

from collections.abc import Callable, Mapping
from typing import Any

from aviot.utils.values import as_number

MAX_DEPTH = 20
"""Levels of nesting that are accepted; the files of a run have five."""

MAX_COUNT = 2**53
"""Upper bound of numbers; no count of frames or tokens reaches it."""

OPTIONAL_SUFFIX = "?"
"""Ends the name of a key that may be missing."""

Check = Callable[[Any], bool]
Schema = Check | Mapping[str, "Schema"]


def is_text(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def is_bool(value: Any) -> bool:
    """Return whether a value is true or false."""
    return isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Return whether a value is an integer of at least 0."""
    return type(value) is int and 0 <= value < MAX_COUNT


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return type(value) in (int, float) and as_number(value) is not None


def is_nonnegative(value: Any) -> bool:
    """Return whether a value is a finite number of at least 0."""
    return is_number(value) and 0 <= value < MAX_COUNT


def or_none(check: Check) -> Check:
    """Return a check that also accepts null."""
    return lambda value: value is None or check(value)


def mapping_of(check: Check, *keys: str) -> Check:
    """Return a check of an object's values; if `keys` are given, the object may have no others."""

    def holds(value: Any) -> bool:
        known = isinstance(value, Mapping) and (not keys or set(value) <= set(keys))
        return known and all(map(check, value.values()))

    return holds


def list_of(check: Check, *, least: int = 1, most: int | None = None) -> Check:
    """Return a check of a list's values and of its length."""

    def holds(value: Any) -> bool:
        counted = isinstance(value, list) and len(value) >= least and (most is None or len(value) <= most)
        return counted and all(map(check, value))

    return holds


def matches(schema: Schema, *, allow_extra: bool = True) -> Check:
    """Return a check of a value against a schema; without `allow_extra`, other keys than the schema's are refused."""

    def holds(value: Any) -> bool:
        keys = {key.removesuffix(OPTIONAL_SUFFIX) for key in schema} if isinstance(schema, Mapping) else set()
        return first_mismatch(value, schema) is None and (allow_extra or set(value) <= keys)

    return holds


def first_mismatch(value: Any, schema: Schema, path: str = "") -> str | None:
    """Return the dotted path of the first key that is missing or has a wrong value; None if the value conforms."""
    if not isinstance(schema, Mapping):
        return None if schema(value) else path or "it"
    if not isinstance(value, Mapping):
        return path or "it"
    for key, expected in schema.items():
        bare = key.removesuffix(OPTIONAL_SUFFIX)
        inner = f"{path}.{bare}".lstrip(".")
        if bare in value:
            if wrong := first_mismatch(value[bare], expected, inner):
                return wrong
        elif bare == key:
            return inner
    return None


def is_too_deep(value: Any) -> bool:
    """Return whether JSON is nested more deeply than any run writes it."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
