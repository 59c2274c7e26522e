"""Errors about checkpoints, and strangers' words made fit for a sentence."""

LONGEST_NAME = 200  # characters of a name that a sentence repeats
LONGEST_REASON = 400  # characters of another library's message


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded, and why."""


def shown(value: object) -> str:
    """Return a name as it is where it is short and printable, else its repr, cut: it cannot steer a terminal."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def quoted(value: object) -> str:
    """Return a value's repr, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def reason_of(error: BaseException) -> str:
    """Return another library's message on one line, printable, and cut to a readable length."""
    text = " ".join(str(error).split())
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"
