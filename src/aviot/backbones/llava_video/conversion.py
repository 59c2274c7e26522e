"""`aviot convert`: writes a checkpoint of another layout in ours, with one shard in memory at a time."""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from aviot.backbones.checkpoints.shards import INDEX, SINGLE, CheckpointError, Shards, read_shards, write_tensors
from aviot.backbones.llava_video.auxiliary_files import GENERATION_FILE, read_generation_settings
from aviot.backbones.llava_video.checkpoint import (
    FRESH,
    FRESH_START,
    CheckpointFolder,
    check_sizes,
    check_tensors,
    expected_tensors,
    read_checkpoint_folder,
)
from aviot.backbones.llava_video.layouts import Layout
from aviot.backbones.llava_video.model import fresh_weights
from aviot.backbones.llava_video.modeling import AviotForConditionalGeneration
from aviot.backbones.llava_video.processing import AviotProcessor
from aviot.utils.files import check_folder, explain_write_errors

logger = logging.getLogger(__name__)

ELSEWHERE = "name a target elsewhere"
FREE_SPACE = f"free some space, or {ELSEWHERE}"


def convert_checkpoint(source_folder: Path, target: Path) -> Iterator[tuple[int, int]]:
    """Convert a published AVIOT or LLaVA-Video checkpoint; yield (shards written, shards in total).

    Everything is checked first and written beside the target, which is then created by one rename.
    """
    if target.exists():
        raise CheckpointError(f"{target} exists already; name a new folder")
    check_folder(target.parent, ELSEWHERE)
    checkpoint = read_checkpoint_folder(source_folder)
    shards = read_shards(source_folder)
    check_sizes(checkpoint, shards)
    stored = check_tensors(checkpoint, shards, expected_tensors(AviotForConditionalGeneration, checkpoint.config))
    parts: list[Any] = [checkpoint.config, AviotProcessor.from_pretrained(source_folder)]
    if (source_folder / GENERATION_FILE).is_file():
        parts.append(read_generation_settings(source_folder, checkpoint.config))
    checkpoint.config.architectures = [AviotForConditionalGeneration.__name__]
    made = [folder for folder in target.parents if not folder.exists()]
    _check_space(made[-1].parent if made else target.parent, sum(path.stat().st_size for path in shards.paths))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with explain_write_errors(target, FREE_SPACE):
            partial.mkdir(parents=True)
            yield from _write_shards(checkpoint, shards, stored, partial)
            for part in parts:
                part.save_pretrained(partial)
            partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


@dataclass(frozen=True)
class Conversion:
    """A summary of the files that a conversion wrote."""

    source: str
    target: str
    layout: Layout  # the source's
    shards: int
    tensors: int
    bytes: int  # size of all shards


def describe_conversion(source_folder: Path, target: Path) -> Conversion:
    """Describe a finished conversion, from the files' headers alone."""
    written = read_shards(target)
    return Conversion(
        source=str(source_folder),
        target=str(target),
        layout=read_checkpoint_folder(source_folder).layout,
        shards=len(written.paths),
        tensors=len(written.shapes),
        bytes=sum(path.stat().st_size for path in written.paths),
    )


def _check_space(folder: Path, needed: int) -> None:
    """Refuse a disk with less free space than the weights need."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"the weights take {needed / 1e6:,.1f} MB and {folder} has {free / 1e6:,.1f} MB left; {FREE_SPACE}"
        )


def _write_shards(
    checkpoint: CheckpointFolder, shards: Shards, stored: dict[str, str], folder: Path
) -> Iterator[tuple[int, int]]:
    ours = {theirs: name for name, theirs in stored.items()}
    fresh = {} if any(name.startswith(FRESH) for name in stored) else fresh_weights(checkpoint.config)
    if fresh:
        logger.warning(FRESH_START, checkpoint.folder)
    count = len(shards.paths) + bool(fresh)
    weight_map: dict[str, str] = {}
    total, dtype = 0, torch.float32
    for number in range(count):
        if number < len(shards.paths):
            path = shards.paths[number]
            with safe_open(path, "pt") as shard:
                tensors = {ours[name]: shard.get_tensor(name) for name in shards.names_in(path) if name in ours}
        else:
            tensors = {name: tensor.to(dtype) for name, tensor in fresh.items()}
        name = SINGLE if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        write_tensors(folder / name, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
        dtype = next((tensor.dtype for tensor in tensors.values()), dtype)
        total += sum(tensor.nbytes for tensor in tensors.values())
        del tensors
        yield number + 1, count
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
