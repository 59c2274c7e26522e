"""Mutations of bytes and of JSON values that know nothing of what the bytes or values mean."""

import copy
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

HEAD = 1024

NUMBERS = (
    *(0, -1, 1, 2, 3, 7, 255, 256, 1000, 4096, 65_535, 65_536, 100_000, 5_000_000, 10_000_000, 10**9, 10**12),
    *(2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 10**30, -(2**31), -(2**63), 10**400),
    *(0.5, -0.5, 1.0, -1.0, 1e-320, 1e-9, 1e9, 1e308, -1e308, math.nan, math.inf, -math.inf),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "0",
        "-1",
        "1e9",
        "nan",
        "None",
        "true",
        "null",
        "a/b",
        "../x",
        "/dev/zero",
        "file:///etc/hostname",
    ),
    *("http://192.0.2.1/x", "\x1b[31mred\x1b]0;title\x07", "\x00", "a\nb", "\u202eoverridden", "\ud800", "é" * 300),
    *(
        "\x9b2J",
        "{}",
        "%s%n",
        "{0.__class__}",
        "'; --",
        "<script>",
        "$(id)",
        "~",
        "~root",
        ".",
        "..",
        "CON",
        "a" * 100_000,
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, *NUMBERS, *TEXTS),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": 1}}, [0] * 2000, ["x"] * 3, [1, "1", None], {"0": 1, "1": 2}),
)
RAW = (
    *("9" * 5000, "1e999999", "-0.0", "[" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000, "[" * 900 + "]" * 900, "01"),
    *("1.", "'x'", "undefined", '"\\ud800\\u0041"', '"\\x41"', '"unfinished', "/* */ 1", "[1,]", "\x0c1", "\ufeff1"),
)
"""JSON, or nearly, that no Python value is written as."""

_MARK = "@raw {} @"


Change = Callable[[Random, Path], str]
"""Changes files below a folder and returns what it did."""


def change_folder(rng: Random, changes: Mapping[str, Change], folder: Path) -> tuple[list[str], str]:
    """Make one or two of some changes; return their names and what was done.

    A second change may find a file that the first has made unreadable, and then does nothing. "special" comes last:
    writing to a pipe that nobody reads would never end.
    """
    kinds = sorted(rng.sample(sorted(changes), rng.choice((1, 1, 1, 2))), key=lambda kind: kind == "special")
    done = []
    for kind in kinds:
        try:
            done.append(f"{kind}: {changes[kind](rng, folder)}")
        except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError, struct.error):
            done.append(f"{kind}: not possible any more")
    return kinds, "; ".join(done)


def choose_bytes(rng: Random, length: int) -> bytes:
    """Return random, blank or repeated bytes."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.randbytes(length)
    return bytes([0 if kind == 1 else rng.randrange(256)]) * length


def mutate_bytes(rng: Random, data: bytes) -> tuple[bytes, str]:
    """Apply one mutation that needs no knowledge of the format; return the result and the mutation in words."""
    changed = bytearray(data)
    size = len(changed)
    a, b = sorted((rng.randrange(size + 1), rng.randrange(size + 1)))
    match rng.randrange(9):
        case 0 | 1:
            reach, count = (size, rng.randint(1, 40)) if rng.random() < 0.5 else (min(HEAD, size), rng.randint(1, 6))
            for _ in range(count):
                changed[rng.randrange(reach)] ^= 1 << rng.randrange(8)
            return bytes(changed), f"flip {count} bits of the first {reach}"
        case 2:
            return bytes(changed[:b]), f"cut at {b}"
        case 3:
            changed[a:b] = choose_bytes(rng, b - a)
            return bytes(changed), f"overwrite {a} to {b}"
        case 4:
            changed[b:b] = changed[a:b]
            return bytes(changed), f"repeat {a} to {b}"
        case 5:
            del changed[a:b]
            return bytes(changed), f"drop {a} to {b}"
        case 6:
            middle = (a + b) // 2
            return bytes(changed[:a] + changed[middle:b] + changed[a:middle] + changed[b:]), f"swap around {middle}"
        case 7:
            changed[a:a] = choose_bytes(rng, rng.choice((1, 2, 4, 100, 5000)))
            return bytes(changed), f"insert at {a}"
        case _:
            return mutate_number(rng, changed, 0, min(HEAD, size))


def mutate_number(rng: Random, data: bytearray, start: int, end: int, width: int = 0) -> tuple[bytes, str]:
    """Overwrite one number, of any width and byte order unless told, somewhere in a range."""
    width = width or rng.choice((2, 2, 4, 4, 4, 8))
    if end - start < width:
        return bytes(data), "unchanged"
    place = rng.randrange(start, end - width + 1)
    value = nasty_number(rng, width)
    data[place : place + width] = value.to_bytes(width, rng.choice(("big", "little")))
    return bytes(data), f"{width * 8}-bit number {value} at {place}"


def nasty_number(rng: Random, width: int) -> int:
    """Return an unsigned number of so many bytes at which arithmetic tends to go wrong."""
    most = 256**width - 1
    edges = (0, 1, 2, most, most - 1, most // 2, most // 2 + 1, 255, 65_535, 100_000, 30_000_000, 10**9)
    return min(most, rng.choice((*edges, rng.randrange(most + 1), 1 << rng.randrange(8 * width))))


def mutate_json(rng: Random, value: Any, names: Sequence[str] = ()) -> tuple[bytes, str]:
    """Return a JSON document with one to three places changed, and what was done; `names` are keys to add."""
    changed, done = copy.deepcopy(value), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        changed, what = _mutate_place(rng, changed, names)
        done.append(what)
    text = json.dumps(changed, ensure_ascii=rng.random() < 0.5)
    for number, raw in enumerate(RAW):
        text = text.replace(json.dumps(_MARK.format(number)), raw)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        data, what = mutate_bytes(rng, data)
        done.append(what)
    elif rng.random() < 0.05 and data[:1] == b"{":
        data = data[:-1] + b"," + data[1:]
        done.append("every key twice")
    return data, "; ".join(done)


def nasty_value(rng: Random) -> Any:
    """Return a value that few fields can hold; marks stand for JSON that no value is written as."""
    if rng.random() < 0.1:
        return _MARK.format(rng.randrange(len(RAW)))
    return copy.deepcopy(rng.choice(VALUES))


def readable(value: Any) -> Any:
    """Return the JSON that a mark stands for, and any other value as it is."""
    return next((raw for number, raw in enumerate(RAW) if value == _MARK.format(number)), value)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values below a value, at most 40 of each list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:40]) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


def _mutate_place(rng: Random, value: Any, names: Sequence[str]) -> tuple[Any, str]:
    path = rng.choice(_places(value))
    parent: Any = value
    for key in path[:-1]:
        parent = parent[key]
    here = parent[path[-1]] if path else value
    where = ".".join(map(str, path)) or "the document"
    new, what = _changed(rng, here, names)
    if what == "remove" and path:
        del parent[path[-1]]
    elif what == "rename" and path and isinstance(parent, dict):
        parent[rng.choice((*TEXTS, *names, f"{path[-1]} ", str(path[-1]).upper()))] = parent.pop(path[-1])
    elif path:
        parent[path[-1]] = new
    elif rng.random() < 0.1 or not isinstance(new, type(value)):
        value = new if rng.random() < 0.2 else value
    else:
        value = new
    return value, f"{where}: {what}"


def _changed(rng: Random, here: Any, names: Sequence[str]) -> tuple[Any, str]:
    """Return another value for a place, and its name; "remove" and "rename" are the caller's to do."""
    kind = rng.randrange(10)
    if kind <= 1:
        return here, ("remove", "rename")[kind]
    if kind == 2:
        return rng.choice(([here], {"x": here}, str(here), [here] * 3, [[[here]]])), "wrap"
    if kind == 3 and isinstance(here, dict):
        name = rng.choice((*names, *TEXTS))
        return {**here, name: nasty_value(rng)}, f"add {name[:40]!r}"
    if kind == 3 and isinstance(here, list):
        return here + [nasty_value(rng)] * rng.choice((1, 1, 500)), "append"
    if kind == 4 and isinstance(here, int | float) and math.isfinite(here):
        return rng.choice((-here, here + 1, here - 1, here * 1000, here / 2, here * 10**7, float(here))), "alter"
    if kind == 5 and isinstance(here, str):
        return rng.choice((here.upper(), here[:1000] * 1000, here[:-1], here + rng.choice(TEXTS), here[::-1])), "alter"
    new = nasty_value(rng)
    return new, f"{readable(new)!r:.60}"
