"""What a run was: enough to know it again, and to repeat it."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch

from aviot.evaluation.config import EvaluationConfig, Setting
from aviot.evaluation.endpoint import Endpoint
from aviot.evaluation.forms import (
    Form,
    has_form,
    is_amount,
    is_count,
    is_deep,
    is_text,
    list_of,
    misshapen,
    names_to,
    or_none,
)
from aviot.evaluation.judge import SYSTEM as JUDGE_SYSTEM
from aviot.evaluation.judge import USER as JUDGE_USER
from aviot.evaluation.plan import Shard
from aviot.evaluation.prompts import Instructions, ask
from aviot.evaluation.reading import Items
from aviot.files import write_durably
from aviot.machine import command_line, commit, machine, versions
from aviot.models import AviotProcessor
from aviot.models.prompt import chat_prompt
from aviot.models.shards import read_shards
from aviot.printing import json_text

FORMAT = 1
FILE = "manifest.json"
PARTS = ("identity", "judge", "places", "starts")
WAIT_SECONDS = 600.0
"""How long the other processes wait for the first to begin a run; hashing a 7B's weights takes a while."""
LARGEST = 2**26
"""Bytes of a run's JSON files that are read; those of the largest suites have some hundred thousand."""
SAID = 120  # characters of a value that is not what it was


IDENTITY: Mapping[str, Form] = {
    "items": {
        "sha256": is_text,
        "count": is_count,
        "split": or_none(is_text),
        "limit?": or_none(is_count),
        "benchmark?": or_none(is_text),
    },
    "weights": names_to(is_text),
    "settings": list_of(has_form({"compressor": is_text, "ratio": or_none(is_amount)}, more=False)),
    "sampling": names_to(or_none(is_amount), "fps", "max_frames", "image_size", "frames", "source_fps"),
    "prompt": {"instructions": names_to(is_text, *(field.name for field in fields(Instructions)))},
    "generation": {"max_new_tokens": is_count, "batch": is_count},
    "seed": is_count,
}
FORM: Mapping[str, Form] = {
    "identity": IDENTITY,
    "judge": or_none(has_form({"model": is_text, "system": is_text, "user": is_text})),
    "places": {"items": is_text, "model": is_text, "videos": or_none(is_text)},
    "starts": list_of(has_form({})),
}
"""What is read of a manifest, and what each part must be."""


class ManifestError(ValueError):
    """A run that is not the one that was meant."""


@dataclass(frozen=True)
class Growth:
    """What a start adds to a run: settings by name, and a number of items."""

    settings: tuple[str, ...] = ()
    items: int = 0

    def __bool__(self) -> bool:
        return bool(self.settings or self.items)


def identity(
    config: EvaluationConfig, items: Items, settings: Sequence[Setting], processor: AviotProcessor
) -> dict[str, Any]:
    """Everything that decides an answer or a score; two runs with the same are the same run."""
    stored = config.model / "generation_config.json"
    return {
        "items": {
            "sha256": items.digest,
            "count": len(items),
            "limit": config.limit,
            "split": config.split,
            "benchmark": config.benchmark,
        },
        "weights": weight_hashes(config.model),
        "settings": [asdict(setting) for setting in settings],
        "sampling": sampling_of(processor, config.sampling),
        "prompt": _prompt(config),
        "generation": {
            "do_sample": False,
            "num_beams": 1,
            "max_new_tokens": config.max_new_tokens,
            "batch": config.batch,
            "checkpoint": _read_generation(stored) if stored.is_file() else {},
        },
        "seed": config.seed,
    }


def sampling_of(processor: AviotProcessor, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """How frames are taken: as the checkpoint says, but for what was chosen."""
    stored = {"fps": processor.fps, "max_frames": processor.max_frames, "image_size": processor.image_size}
    return stored | {name: value for name, value in chosen.items() if value is not None}


def weight_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a checkpoint that an answer depends on: weights, configurations, tokenizer."""
    beside = [path for pattern in ("*.json", "*/config.json", "*.txt", "*.jinja") for path in folder.glob(pattern)]
    files = {*read_shards(folder).paths, *beside}
    return {str(path.relative_to(folder)): _sha256(path) for path in sorted(files)}


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware here."""
    found: dict[str, Any] = {"commit": commit(), "versions": versions(), "machine": machine(device)}
    try:
        import av
    except ModuleNotFoundError:
        return found
    libraries = {name: ".".join(map(str, number)) for name, number in av.library_versions.items()}
    return found | {"ffmpeg": {"release": getattr(av, "ffmpeg_version_info", None), **libraries}}


def begin(config: EvaluationConfig, same: Mapping[str, Any], where: Mapping[str, Any], shard: Shard) -> Growth:
    """Begin a run, go on with one, or add to one; returns what is added.

    The first process writes the manifest, the others wait for it and compare.
    """
    run, starts, judge, added = config.out, [], None, Growth()
    if shard.rank > 0:
        _wait_for(run / FILE)
        return growth(run, same)
    run.mkdir(parents=True, exist_ok=True)
    if (run / FILE).is_file():
        added = growth(run, same)
        before = read_manifest(run)
        starts, judge = before["starts"], before["judge"]
    start: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "command": command_line()}
    start |= {"processes": shard.processes, **({"added": asdict(added)} if added else {})}
    starts = [*starts, start | dict(where)]
    manifest = {
        "format": FORMAT,
        "identity": dict(same),
        "judge": _judge(run, judge, config.judge),
        "places": {name: _place(getattr(config, name)) for name in ("items", "model", "videos")},
        "starts": starts,
    }
    write_durably(run / FILE, json_text(manifest, indent=2).encode() + b"\n")
    return added


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest of a run."""
    found = read_object(run / FILE)
    if found.get("format") != FORMAT:
        raise ManifestError(f"{run / FILE} is not of format {FORMAT}; it was written by another version")
    lacks = [name for name in PARTS if name not in found]
    if lacks:
        raise ManifestError(f"{run / FILE} must hold {', '.join(PARTS)}; it lacks {', '.join(lacks)}: it was changed")
    if wrong := misshapen(found, FORM):
        raise ManifestError(f"{run / FILE} is not as a run writes it: see {wrong}; it was changed, put it back")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object that a run wrote."""
    if path.exists() and not path.is_file():
        raise ManifestError(f"{path} is not a regular file; {path.parent} is no whole run of aviot evaluate")
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise ValueError(f"it has {size:,} bytes, and may have {LARGEST:,}")
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(
            f"{path} cannot be read ({error}); {path.parent} is no whole run of aviot evaluate"
        ) from error
    if not isinstance(found, dict) or is_deep(found):
        raise ManifestError(f"{path} must hold an object as a run writes it, got {_short(found)}; the run was changed")
    return found


def _read_generation(path: Path) -> dict[str, Any]:
    """A checkpoint's own choices for generation."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(f"{path} cannot be read ({error}); the checkpoint is damaged") from error
    if not isinstance(found, dict) or is_deep(found):
        raise ManifestError(f"{path} must hold an object of plain values; the checkpoint is damaged")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def differences(stored: Any, current: Any, prefix: str = "") -> list[str]:
    """What differs between two nested values, in words."""
    if isinstance(stored, Mapping) and isinstance(current, Mapping):
        names = [*stored, *(name for name in current if name not in stored)]
        return [line for name in names for line in differences(stored.get(name), current.get(name), f"{prefix}{name}.")]
    return [] if stored == current else [f"{prefix.rstrip('.')} was {_short(stored)}, is {_short(current)}"]


def _short(value: Any) -> str:
    said = type(value).__name__ if is_deep(value) else repr(value)
    return said if len(said) <= SAID else f"{said[:SAID]}…"


def growth(run: Path, same: Mapping[str, Any]) -> Growth:
    """Return what a run gains over its manifest; ManifestError for anything else that differs.

    Settings may be added, and a limit raised: rows that are there stay as they are.
    """
    stored, current = read_manifest(run)["identity"], json.loads(json.dumps(same))
    changed = differences(_fixed(stored), _fixed(current))
    before, now = ([Setting(**each).name for each in told["settings"]] for told in (stored, current))
    if lost := [name for name in before if name not in now]:
        changed.append(f"settings were {', '.join(before)}, are {', '.join(now)}: {', '.join(lost)} must stay")
    items = current["items"]["count"] - stored["items"]["count"]
    limits = [told["items"].get("limit") for told in (stored, current)]
    if items < 0:
        changed.append(f"items.limit was {limits[0]}, is {limits[1]}: it can only be raised")
    if items > 0 and current["generation"]["batch"] > 1:
        changed.append(f"items.limit was {limits[0]}, is {limits[1]}: with a batch above 1 it cannot be raised")
    if changed:
        raise ManifestError(
            f"the run in {run} would not go on as it began: {'; '.join(changed)}. Give it the options it began with "
            "(ratios and compressors may be added to them), or name another folder"
        )
    return Growth(tuple(name for name in now if name not in before), items)


def _fixed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an identity that may not change."""
    items = {name: value for name, value in told["items"].items() if name not in ("count", "limit")}
    return {name: value for name, value in told.items() if name != "settings"} | {"items": items}


def _place(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            raise ManifestError(
                f"the first process has not begun the run: there is no {path} after {WAIT_SECONDS:.0f} s"
            )
        time.sleep(0.2)


def _prompt(config: EvaluationConfig) -> dict[str, Any]:
    """The words around a question, by an example."""
    example = ask("QUESTION", ("OPTION", "OPTION"), config.instructions.choice)
    whole = chat_prompt(example.text, 1.0, (0.0, 0.5), span=example.span).text
    return {"choice": whole, "instructions": asdict(config.instructions)}


def _judge(run: Path, stored: Mapping[str, Any] | None, endpoint: Endpoint | None) -> Mapping[str, Any] | None:
    """The judge of a run: it may come later, and may not change."""
    if endpoint is None:
        return stored
    current = endpoint.describe() | {"system": JUDGE_SYSTEM, "user": JUDGE_USER}
    if stored is not None and any(stored[name] != current[name] for name in ("model", "system", "user")):
        raise ManifestError(
            f"the answers in {run} are judged by {stored['model']}, not {endpoint.model}; name another folder"
        )
    return current


def _sha256(path: Path) -> str:
    found = path.stat()
    return _hash_once(path.resolve(), found.st_size, found.st_mtime_ns)


@cache
def _hash_once(path: Path, size: int, changed: int) -> str:
    """A suite begins ten runs of one checkpoint; its files are hashed for the first, unless they change."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
