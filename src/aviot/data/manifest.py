"""Which files are trained on, and how much of each: one file of records, or a YAML manifest of several."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.data.errors import DataError
from aviot.data.selection import Selection
from aviot.data.unique_keys import unique_keys_loader

MAX_MANIFEST = 2**20
"""Bytes; a manifest lists files, and a mebibyte of it lists thousands."""

MAX_DEPTH = 8
"""Of nesting; three are of use."""

_SUFFIXES = (".yaml", ".yml")
_KEYS = ("json_path", "sampling_strategy", "video_root")
_FORM = "datasets: a list of {json_path: FILE, sampling_strategy: all}"


@dataclass(frozen=True)
class Source:
    """A file of records, the part of it that is used, and the folder its videos are named from."""

    path: Path
    selection: Selection
    video_root: Path


def read_sources(records: str, video_root: str | None) -> tuple[Source, ...]:
    """The sources of a manifest, or a single file as one.

    Paths in a manifest count from its own folder. Videos are looked for below the source's `video_root`, else below the
    one given here, else beside the records.
    """
    path = Path(records)
    if path.suffix.lower() not in _SUFFIXES:
        return (Source(path, Selection("all"), Path(video_root) if video_root else path.parent),)
    entries = _entries(path)
    return tuple(_source(entry, f"{path}, dataset {i}", path, video_root) for i, entry in enumerate(entries, 1))


def _entries(path: Path) -> list[Any]:
    content = _load_yaml(path)
    if not isinstance(content, dict) or set(content) != {"datasets"} or not isinstance(content["datasets"], list):
        raise DataError(f"{path} must hold `{_FORM}` and nothing else")
    if not content["datasets"]:
        raise DataError(f"{path} lists no datasets; give at least one: {_FORM}")
    return content["datasets"]


def _source(entry: Any, where: str, manifest: Path, video_root: str | None) -> Source:
    if not isinstance(entry, dict):
        raise DataError(f"{where} must be a mapping with the keys {', '.join(_KEYS)}, got {type(entry).__name__}")
    unknown = sorted(str(key)[:80] for key in entry if key not in _KEYS)
    if unknown:
        raise DataError(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    for key in ("json_path", "video_root"):
        value = entry.get(key)
        if (value is not None or key == "json_path") and not (isinstance(value, str) and value):
            raise DataError(f"{where}: {key} must be a path as text, got {type(value).__name__}")
    path = manifest.parent / entry["json_path"]
    root = manifest.parent / entry["video_root"] if entry.get("video_root") else Path(video_root or path.parent)
    return Source(path, Selection.parse(entry.get("sampling_strategy", "all"), where), root)


def _load_yaml(path: Path) -> Any:
    """Plain values only: no tags that make objects."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise DataError(f"manifests need PyYAML, which is missing ({error}); pip install 'aviot[video]'") from error
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_MANIFEST else None
    except (OSError, ValueError) as error:
        raise DataError(f"the manifest {path} cannot be read ({error})") from None
    if data is None:
        raise DataError(f"the manifest {path} is larger than {MAX_MANIFEST:,} bytes; is it a file of records?")
    try:
        _refuse_tricks(yaml, data, path)
        return yaml.load(data, unique_keys_loader())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not YAML of plain values: {error}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not YAML of plain values: {error}") from None


def _refuse_tricks(yaml: Any, data: bytes, path: Path) -> None:
    """Aliases, a few lines of which unfold without end, and depth, which takes a parser forever."""
    depth = 0
    for event in yaml.parse(data, yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise DataError(f"{path}, line {line}: aliases (*name) are not taken; write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DataError(f"{path}, line {line}: nested more than {MAX_DEPTH} deep; expected `{_FORM}`")
