"""Checks of JSON values that every part of a record shares."""

from typing import Any

from aviot.data.errors import RecordError


class RepeatedKey(dict[str, Any]):
    """A JSON object that says the same key twice, and which."""

    def __init__(self, pairs: list[tuple[str, Any]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def check_object(value: Any, what: str) -> None:
    """Raise RecordError unless the value is a JSON object without repeated keys."""
    if not isinstance(value, dict):
        raise RecordError(f"{what} must be a JSON object, got {json_name(value)}")
    check_keys(value, what)


def check_keys(value: Any, what: str, error: type[ValueError] = RecordError) -> None:
    """Raise an error if the value is a JSON object that says a key twice."""
    if isinstance(value, RepeatedKey):
        raise error(f"{what} has the key {value.key[:80]!r} twice; it is unclear which is meant")


def check_text(text: str, what: str, error: type[ValueError] = RecordError) -> str:
    """Return text that can be encoded: half of a surrogate pair is legal in JSON and nowhere else."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise error(f"{what} holds half a character (a lone surrogate, such as \\ud800)") from None
    return text


def is_given(value: Any) -> bool:
    """Return whether a key's value says anything; exporters write null or an empty list for a column without one."""
    return not (value is None or (isinstance(value, str | list | dict) and not value))


def quoted(value: object) -> str:
    """Return text in quotes, cut to a readable length, or the name of a value's type."""
    if not isinstance(value, str):
        return type(value).__name__
    return f"{value[:200]!r}…" if len(value) > 200 else repr(value)


def json_name(value: Any) -> str:
    """Return the name that JSON has for a value's type."""
    names = {list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return "an object" if isinstance(value, dict) else names.get(type(value), "a number")
