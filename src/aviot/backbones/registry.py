"""The registry of model families: those of this package, and those that other packages add by an entry point.

A package adds a family by an entry point in the group `aviot.backbones`, whose value is a `Backbone` subclass.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.backbones.base import Backbone, StoredBackbone, VideoShape
from aviot.backbones.checkpoints.adapter import Adapter, is_adapter
from aviot.backbones.checkpoints.folder import CheckpointError, read_json, resolve_folder
from aviot.backbones.checkpoints.unknown import why_unknown
from aviot.backbones.loading import LoadOptions

if TYPE_CHECKING:
    import torch

GROUP = "aviot.backbones"
ADDING = "docs/backbones.md lists what is read, and explains how to add a family"

_OWN = {
    "llava-video": "aviot.backbones.llava_video.backbone:LlavaVideo",
    "qwen2-vl": "aviot.backbones.qwen2_vl:Qwen2VL",
    "qwen2.5-vl": "aviot.backbones.qwen2_vl:Qwen2_5VL",
    "qwen3-vl": "aviot.backbones.qwen3_vl:Qwen3VL",
    "qwen3.5": "aviot.backbones.qwen3_vl:Qwen3_5",
    "llava-onevision": "aviot.backbones.llava_onevision:LlavaOneVision",
    "internvl": "aviot.backbones.internvl:InternVL",
    "video-llama3": "aviot.backbones.video_llama3:VideoLlama3",
    "smolvlm": "aviot.backbones.smolvlm:SmolVLM",
}
_registered: dict[str, type[Backbone]] = {}


def names() -> tuple[str, ...]:
    """Return the names of all families."""
    return (*_OWN, *sorted({*_registered, *(point.name for point in entry_points(group=GROUP))} - set(_OWN)))


def register(family: type[Backbone]) -> None:
    """Add a family for this process; other packages use an entry point in the group `aviot.backbones`."""
    _registered[family.family] = family


def families() -> Iterator[type[Backbone]]:
    """Yield every family's class; those of other packages come first, so that they can override a layout."""
    yield from _registered.values()
    for point in entry_points(group=GROUP):
        yield point.load()
    for entry in _OWN.values():
        module, _, name = entry.partition(":")
        yield getattr(import_module(module), name)


def family_of(folder: Path) -> type[Backbone]:
    """Return the family of a checkpoint, by its config.json."""
    config = read_json(folder / "config.json")
    for family in families():
        if family.handles(config):
            return family
    raise CheckpointError(f"{folder}: {why_unknown(config)} ({', '.join(names())}); {ADDING}")


def load(
    folder: Path,
    device: "torch.device",
    options: LoadOptions | None = None,
    *,
    base: str | Path | None = None,
    **origin: Any,
) -> Backbone:
    """Load a checkpoint of any family, or an adapter on its base model.

    `base` names another place of an adapter's base than the recorded one; `origin` says how a base on the hub is found.
    """
    if not is_adapter(folder):
        _refuse_base(folder, base)
        return _load_with(family_of(folder), folder, device, options)
    adapter = Adapter.read(folder)
    place = _base_folder(folder, adapter, base, origin)
    family = family_of(place)
    adapter.check_base(folder, place, family.family)
    backbone = _load_with(family, place, device, options)
    backbone.adapt(folder, adapter)
    return backbone


def _load_with(family: type[Backbone], folder: Path, device: "torch.device", options: LoadOptions | None) -> Backbone:
    if options is None or options == LoadOptions():
        return family.load(folder, device)
    return family.load_with(folder, device, options)


def stored(folder: Path, *, base: str | Path | None = None) -> StoredBackbone:
    """Read the small files of a checkpoint, or of an adapter's base model, without weights."""
    if not is_adapter(folder):
        _refuse_base(folder, base)
        return family_of(folder).stored(folder)
    adapter = Adapter.read(folder)
    place = _base_folder(folder, adapter, base, {})
    found = family_of(place).stored(place)
    sampled = {"fps": adapter.sampling.fps, "max_frames": adapter.sampling.max_frames}
    return replace(found, sampling=found.sampling | sampled)


def shape_of(folder: Path, frames: int, size: tuple[int, int], *, base: str | Path | None = None) -> VideoShape:
    """Return a checkpoint's numbers of tokens for a video, or those of an adapter's base model, without weights."""
    if is_adapter(folder):
        folder = _base_folder(folder, Adapter.read(folder), base, {})
    else:
        _refuse_base(folder, base)
    return family_of(folder).shape_of(folder, frames, size)


def _base_folder(folder: Path, adapter: Adapter, base: str | Path | None, origin: Mapping[str, Any]) -> Path:
    try:
        return resolve_folder(adapter.base.path if base is None else base, **origin)
    except CheckpointError as error:
        raise CheckpointError(
            f"{folder} is an adapter for a model of the family {adapter.base.family}, which was not found: {error}; "
            "name the folder of its base model (base)"
        ) from error


def _refuse_base(folder: Path, base: str | Path | None) -> None:
    if base is not None:
        raise CheckpointError(f"{folder} is a whole model, not an adapter; leave out the base model {base}")


def wrap(model: Any, processor: Any) -> Backbone:
    """Return the backbone of a loaded model."""
    for family in families():
        found = family.wrap(model, processor)
        if found is not None:
            return found
    raise ValueError(f"{type(model).__name__} belongs to none of the families {', '.join(names())}; {ADDING}")
