"""The manifest of a run: its identity (all that decides an answer or a score) and the environment of every start."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, get_args

import torch

from aviot.backbones.base import StoredBackbone
from aviot.backbones.checkpoints.adapter import is_adapter
from aviot.backbones.checkpoints.lora import ADAPTER_FOLDER
from aviot.backbones.checkpoints.shards import read_shards
from aviot.evaluation.batching import Shard
from aviot.evaluation.config import EvaluationConfig, Setting, under_current_names
from aviot.evaluation.endpoint import Endpoint
from aviot.evaluation.item import Instructions, build_prompt
from aviot.evaluation.judge import SYSTEM as JUDGE_SYSTEM
from aviot.evaluation.judge import USER as JUDGE_USER
from aviot.evaluation.reading import Items
from aviot.evaluation.schema import (
    Schema,
    first_mismatch,
    is_count,
    is_nonnegative,
    is_text,
    is_too_deep,
    list_of,
    mapping_of,
    matches,
    or_none,
)
from aviot.utils.files import write_durably
from aviot.utils.machine import command_line, commit, machine, versions
from aviot.utils.printing import json_text
from aviot.video.sampling import SamplingMode

FORMAT = 1
FILE = "manifest.json"
PARTS = ("identity", "judge", "places", "starts")
WAIT_SECONDS = 600.0
"""Longest wait of the other ranks for rank 0 to write the manifest; hashing the weights of a 7B model takes long."""
MAX_JSON_BYTES = 2**26
"""Largest JSON file of a run that is read; those of the largest suites have some hundred thousand bytes."""
MAX_VALUE = 120  # characters of a value in a message


SAMPLING_SCHEMA: Mapping[str, Schema] = {
    **{f"{name}?": or_none(is_nonnegative) for name in ("fps", "max_frames", "image_size", "frames", "source_fps")},
    "sampling?": lambda value: value in get_args(SamplingMode),
}
IDENTITY_SCHEMA: Mapping[str, Schema] = {
    "items": {
        "sha256": is_text,
        "count": is_count,
        "split": or_none(is_text),
        "limit?": or_none(is_count),
        "benchmark?": or_none(is_text),
    },
    "weights": mapping_of(is_text),
    "settings": list_of(
        matches({"method": is_text, "ratio": or_none(is_nonnegative), "other?": is_text}, allow_extra=False)
    ),
    "sampling": matches(SAMPLING_SCHEMA, allow_extra=False),
    "prompt": {"instructions": mapping_of(is_text, *(field.name for field in fields(Instructions)))},
    "generation": {"max_new_tokens": is_count, "batch": is_count, "dtype?": is_text, "quantization?": is_text},
    "seed": is_count,
}
MANIFEST_SCHEMA: Mapping[str, Schema] = {
    "identity": IDENTITY_SCHEMA,
    "judge": or_none(matches({"model": is_text, "system": is_text, "user": is_text})),
    "places": {"items": is_text, "model": is_text, "videos": or_none(is_text), "base?": is_text},
    "starts": list_of(matches({})),
}
"""Schema of the parts of a manifest that are read."""


class ManifestError(ValueError):
    """A manifest that is unreadable, edited, or of another run."""


@dataclass(frozen=True)
class Additions:
    """Settings (by name) and number of items that a resumed start adds to a run."""

    settings: tuple[str, ...] = ()
    items: int = 0

    def __bool__(self) -> bool:
        return bool(self.settings or self.items)


def identity(
    config: EvaluationConfig, items: Items, settings: Sequence[Setting], stored: StoredBackbone
) -> dict[str, Any]:
    """Return everything that decides an answer or a score; equal identities are the same run."""
    generation = config.model / "generation_config.json"
    return {
        "items": {
            "sha256": items.digest,
            "count": len(items),
            "limit": config.limit,
            "split": config.split,
            "benchmark": config.benchmark,
        },
        "weights": weight_hashes(config.model),
        "settings": [setting.record for setting in settings],
        "sampling": effective_sampling(stored, config.sampling),
        "prompt": _prompt(config, stored),
        "generation": {
            "do_sample": False,
            "num_beams": 1,
            "max_new_tokens": config.max_new_tokens,
            "batch": config.batch,
            "checkpoint": _read_generation(generation) if generation.is_file() else {},
            **config.loading.recorded,
        },
        "seed": config.seed,
    }


def effective_sampling(stored: StoredBackbone, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the frame sampling: the checkpoint's, overridden by what was chosen."""
    return stored.sampling | {name: value for name, value in chosen.items() if value is not None}


def weight_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every checkpoint file that an answer depends on: weights, configurations, tokenizer."""
    configurations = [
        path for pattern in ("*.json", "*/config.json", "*.txt", "*.jinja", "*.model") for path in folder.glob(pattern)
    ]
    adapters = folder.glob(f"{ADAPTER_FOLDER}/*.safetensors") if is_adapter(folder) else ()  # else merged as well
    files = {*read_shards(folder).paths, *adapters, *configurations}
    return {str(path.relative_to(folder)): _sha256(path) for path in sorted(files)}


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and hardware of this process."""
    found: dict[str, Any] = {"commit": commit(), "versions": versions(), "machine": machine(device)}
    try:
        import av
    except ModuleNotFoundError:
        return found
    libraries = {name: ".".join(map(str, number)) for name, number in av.library_versions.items()}
    return found | {"ffmpeg": {"release": getattr(av, "ffmpeg_version_info", None), **libraries}}


def record_start(
    config: EvaluationConfig, identity: Mapping[str, Any], environment: Mapping[str, Any], shard: Shard
) -> Additions:
    """Record a start in the manifest of a new or resumed run; return what the start adds to the run.

    Rank 0 writes the manifest; the others wait for it and compare identities.
    """
    run, starts, judge, added = config.out, [], None, Additions()
    if shard.rank > 0:
        _wait_for(run / FILE)
        return additions(run, identity)
    run.mkdir(parents=True, exist_ok=True)
    if (run / FILE).is_file():
        added = additions(run, identity)
        before = read_manifest(run)
        starts, judge = before["starts"], before["judge"]
    start: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "command": command_line()}
    start |= {"processes": shard.processes, **({"added": asdict(added)} if added else {})}
    starts = [*starts, start | dict(environment)]
    manifest = {
        "format": FORMAT,
        "identity": dict(identity),
        "judge": _judge(run, judge, config.judge),
        "places": _places(config),
        "starts": starts,
    }
    write_durably(run / FILE, json_text(manifest, indent=2).encode() + b"\n")
    return added


def _places(config: EvaluationConfig) -> dict[str, str | None]:
    """Return where the parts of a run are; that of an adapter's base only if it is not the recorded one."""
    names = ("items", "model", "videos") if config.base is None else ("items", "model", "videos", "base")
    return {name: _absolute(getattr(config, name)) for name in names}


def read_manifest(run: Path) -> dict[str, Any]:
    """Return the manifest of a run; raise ManifestError if it is not as a run writes it."""
    found = read_object(run / FILE)
    if found.get("format") != FORMAT:
        raise ManifestError(
            f"{run / FILE} is not of format {FORMAT}: another version wrote it; choose another output directory"
        )
    missing = [name for name in PARTS if name not in found]
    if missing:
        raise ManifestError(f"{run / FILE} must hold {', '.join(PARTS)}; it lacks {', '.join(missing)}; restore it")
    _rename_settings(found["identity"])
    if wrong := first_mismatch(found, MANIFEST_SCHEMA):
        raise ManifestError(f"{run / FILE} is not as a run writes it: see {wrong}; it was edited, restore it")
    return found


def _rename_settings(identity: Any) -> None:
    """Put settings of an identity that an earlier version wrote under their present names; the rest is left alone."""
    settings = identity.get("settings") if isinstance(identity, dict) else None
    if isinstance(settings, list):
        identity["settings"] = [under_current_names(each) if isinstance(each, dict) else each for each in settings]


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object that a run wrote; raise ManifestError for anything else."""
    if path.exists() and not path.is_file():
        raise ManifestError(f"{path} is not a regular file; {path.parent} is not a complete run of aviot evaluate")
    try:
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            raise ValueError(f"it has {size:,} bytes, and may have {MAX_JSON_BYTES:,}")
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(
            f"{path} cannot be read ({error}); {path.parent} is not a complete evaluation run"
        ) from error
    if not isinstance(found, dict) or is_too_deep(found):
        raise ManifestError(f"{path} must hold an object as a run writes it, got {_short(found)}; restore it")
    return found


def _read_generation(path: Path) -> dict[str, Any]:
    """Return a checkpoint's generation configuration."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(f"{path} cannot be read ({error}); the checkpoint is damaged") from error
    if not isinstance(found, dict) or is_too_deep(found):
        raise ManifestError(f"{path} must hold an object of plain values; the checkpoint is damaged")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def differences(stored: Any, current: Any, prefix: str = "") -> list[str]:
    """Return the differences between two nested values, one sentence each."""
    if isinstance(stored, Mapping) and isinstance(current, Mapping):
        names = [*stored, *(name for name in current if name not in stored)]
        return [line for name in names for line in differences(stored.get(name), current.get(name), f"{prefix}{name}.")]
    return [] if stored == current else [f"{prefix.rstrip('.')} was {_short(stored)}, is {_short(current)}"]


def _short(value: Any) -> str:
    text = type(value).__name__ if is_too_deep(value) else repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def additions(run: Path, identity: Mapping[str, Any]) -> Additions:
    """Return what an identity adds to a run's manifest; raise ManifestError for any other difference.

    Settings may be added and a limit raised; existing rows stay valid.
    """
    stored, current = read_manifest(run)["identity"], json.loads(json.dumps(identity))
    changed = differences(_fixed(stored), _fixed(current))
    before, now = ([Setting(**each).name for each in one["settings"]] for one in (stored, current))
    if lost := [name for name in before if name not in now]:
        changed.append(f"settings were {', '.join(before)}, are {', '.join(now)}: {', '.join(lost)} must stay")
    items = current["items"]["count"] - stored["items"]["count"]
    limits = [one["items"].get("limit") for one in (stored, current)]
    if items < 0:
        changed.append(f"items.limit was {limits[0]}, is {limits[1]}: it can only be raised")
    if items > 0 and current["generation"]["batch"] > 1:
        changed.append(f"items.limit was {limits[0]}, is {limits[1]}: with a batch above 1 it cannot be raised")
    if changed:
        raise ManifestError(
            f"the run in {run} cannot be resumed with this configuration: {'; '.join(changed)}. Use that of its first "
            "start (ratios and methods may be added), or choose another output directory"
        )
    return Additions(tuple(name for name in now if name not in before), items)


def _fixed(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an identity that may not change."""
    items = {name: value for name, value in identity["items"].items() if name not in ("count", "limit")}
    return {name: value for name, value in identity.items() if name != "settings"} | {"items": items}


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            raise ManifestError(
                f"rank 0 has not written {path} within {WAIT_SECONDS:.0f} s; see its output, and start all ranks again"
            )
        time.sleep(0.2)


def _prompt(config: EvaluationConfig, stored: StoredBackbone) -> dict[str, Any]:
    """Return the prompt of an example question, and the instructions."""
    example = build_prompt("QUESTION", ("OPTION", "OPTION"), config.instructions.choice)
    return {"choice": stored.prompt(example.text, example.span), "instructions": asdict(config.instructions)}


def _judge(run: Path, stored: Mapping[str, Any] | None, endpoint: Endpoint | None) -> Mapping[str, Any] | None:
    """Return the judge of a run; it may be added later but not changed."""
    if endpoint is None:
        return stored
    current = endpoint.describe() | {"system": JUDGE_SYSTEM, "user": JUDGE_USER}
    if stored is not None and any(stored[name] != current[name] for name in ("model", "system", "user")):
        raise ManifestError(
            f"the answers in {run} are judged by {stored['model']}, not {endpoint.model}; choose another directory"
        )
    return current


def _sha256(path: Path) -> str:
    found = path.stat()
    return _hash_once(path.resolve(), found.st_size, found.st_mtime_ns)


@cache
def _hash_once(path: Path, size: int, modified: int) -> str:
    """Return the SHA-256 of a file; cached because a suite starts ten runs of one checkpoint."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
