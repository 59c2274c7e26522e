"""The form of what a run wrote, checked where it is read again: what was edited is named, not stumbled over."""

from collections.abc import Callable, Mapping
from typing import Any

from aviot.utils.values import as_number

DEEPEST = 20
"""Levels of nesting in what a run writes; it has five."""

MOST = 2**53
"""Counts that a run can write; a larger one is no count of frames or tokens."""

OPTIONAL = "?"
"""Ends the name of a part that may be missing."""

Check = Callable[[Any], bool]
Form = Check | Mapping[str, "Form"]


def is_text(value: Any) -> bool:
    """Return whether it is text."""
    return isinstance(value, str)


def is_truth(value: Any) -> bool:
    """Return whether it is true or false."""
    return isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Return whether it is a whole number of at least zero."""
    return type(value) is int and 0 <= value < MOST


def is_number(value: Any) -> bool:
    """Return whether it is a finite number."""
    return type(value) in (int, float) and as_number(value) is not None


def is_amount(value: Any) -> bool:
    """Return whether it is a finite number of at least zero."""
    return is_number(value) and 0 <= value < MOST


def or_none(check: Check) -> Check:
    """Return a check that lets null pass too."""
    return lambda value: value is None or check(value)


def names_to(check: Check, *names: str) -> Check:
    """Return a check of an object's values, and of its names where some are given."""

    def holds(value: Any) -> bool:
        known = isinstance(value, Mapping) and (not names or set(value) <= set(names))
        return known and all(map(check, value.values()))

    return holds


def list_of(check: Check, *, least: int = 1, most: int | None = None) -> Check:
    """Return a check of a list's values, and of how many there are."""

    def holds(value: Any) -> bool:
        counted = isinstance(value, list) and len(value) >= least and (most is None or len(value) <= most)
        return counted and all(map(check, value))

    return holds


def has_form(form: Form, *, more: bool = True) -> Check:
    """Return a check of an object's parts; where there may be no `more`, it has no others."""

    def holds(value: Any) -> bool:
        names = {name.removesuffix(OPTIONAL) for name in form} if isinstance(form, Mapping) else set()
        return misshapen(value, form) is None and (more or set(value) <= names)

    return holds


def misshapen(value: Any, form: Form, name: str = "") -> str | None:
    """Return the name of the first part of a value that is missing or not of its form; None for a good one."""
    if not isinstance(form, Mapping):
        return None if form(value) else name or "it"
    if not isinstance(value, Mapping):
        return name or "it"
    for part, wanted in form.items():
        bare = part.removesuffix(OPTIONAL)
        place = f"{name}.{bare}".lstrip(".")
        if bare in value:
            if wrong := misshapen(value[bare], wanted, place):
                return wrong
        elif bare == part:
            return place
    return None


def is_deep(value: Any) -> bool:
    """Return whether JSON is nested more deeply than any run writes it."""
    level = [value]
    for _ in range(DEEPEST):
        level = [each for one in level for each in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
