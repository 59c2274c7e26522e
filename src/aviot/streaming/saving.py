"""Files of a stream's memory: one safetensors file with the supports, the frames behind each, and all counts."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aviot.backbones.base import Backbone
from aviot.backbones.checkpoints.shards import write_tensors
from aviot.methods.features import Structure
from aviot.streaming.bank import FEATURES, BankView, SupportBank
from aviot.streaming.encoding import StreamShape
from aviot.streaming.records import FrameRange
from aviot.streaming.status import StreamStatus

logger = logging.getLogger(__name__)

KEY, VERSION = "aviot_stream", 1
PREFIX = "support."


@dataclass(frozen=True)
class SavedStream:
    """A stream's memory at one moment, and what is needed to go on."""

    view: BankView
    capacity: int
    recent: int
    merges: int
    shape: StreamShape
    frame_size: tuple[int, int]
    clock: tuple[float, float, float]
    fps: float
    limits: dict[str, int | None]
    status: StreamStatus

    def bank(self, device: torch.device) -> SupportBank:
        """Return a bank with these supports."""
        tensors = {name: tensor.to(device) for name, tensor in self.view.tensors.items()}
        bank = SupportBank(self.capacity, self.recent, tensors)
        bank.add(tensors, self.view.records)
        bank.merges = self.merges
        return bank


class Saver:
    """A thread that saves every so many seconds while a `with` block runs, and once more at its end."""

    def __init__(self, save: Callable[[Path], None], path: Path, seconds: float, ready: Callable[[], bool]) -> None:
        self._save, self._path, self._seconds, self._ready = save, path, seconds, ready
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="aviot-saver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._ready():
            self._save(self._path)

    def _work(self) -> None:
        while not self._over.wait(self._seconds):
            if self._ready():
                try:
                    self._save(self._path)
                except OSError as error:  # a full disk may have room again next time; the last save says so otherwise
                    logger.warning("%s was not saved: %s", self._path, error)


def write(path: Path, saved: SavedStream, backbone: Backbone) -> None:
    """Write a stream's memory atomically."""
    records = saved.view.records
    tensors = {PREFIX + name: tensor.cpu() for name, tensor in saved.view.tensors.items()}
    tensors["knots"] = torch.from_numpy(np.concatenate([record.knots for record in records]))
    tensors["knot_counts"] = torch.tensor([len(record.knots) for record in records])
    tensors["means"] = torch.tensor(
        [(record.mean_time, record.time_error, record.number_error) for record in records], dtype=torch.float64
    )
    about = {
        "version": VERSION,
        "family": backbone.family,
        "model": backbone.name_or_path,
        "dtype": str(saved.shape.dtype).removeprefix("torch."),
        "structure": asdict(saved.shape.structure),
        "status": saved.status.as_dict(),
    }
    about |= {name: getattr(saved.shape, name) for name in ("grid", "tokens_per_frame", "merged")}
    names = ("capacity", "recent", "merges", "frame_size", "clock", "fps", "limits")
    about |= {name: getattr(saved, name) for name in names}
    write_tensors(path, tensors, {KEY: json.dumps(about)})


def read(path: Path, backbone: Backbone) -> SavedStream:
    """Read a stream's memory; ValueError for a file that is damaged, or of another kind of model."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; name one that a stream was saved to")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not the saved memory of a stream, or is damaged ({error})") from error
    if about.get("version") != VERSION:
        raise ValueError(f"{path} has version {about.get('version')!r} of the format; this one reads {VERSION}")
    if about.get("family") != backbone.family:
        raise ValueError(f"{path} is a memory of a {about.get('family')} model, and this is a {backbone.family} one")
    try:
        return _rebuilt(about, tensors)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path} is not the saved memory of a stream, or is damaged ({error})") from error


def _rebuilt(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SavedStream:
    supports = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    counts = tensors["knot_counts"].tolist()
    knots = np.split(tensors["knots"].numpy(), np.cumsum(counts)[:-1])
    records = tuple(FrameRange(own, *means) for own, means in zip(knots, tensors["means"].tolist(), strict=True))
    grid = tuple(map(int, about["grid"]))
    sound = all(len(record.knots) and record.count >= len(record.knots) for record in records)
    whole = records[0].first == 0 and records[-1].last + 1 == about["status"]["encoded"]
    joined = all(a.last + 1 == b.first for a, b in pairwise(records))
    finite = all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    sized = supports[FEATURES].shape[:2] == (len(records), grid[0] * grid[1]) and len(records) <= about["capacity"]
    if not (sound and whole and joined and finite and sized):
        raise ValueError("its supports do not belong together")
    known = {field.name for field in fields(StreamStatus)}
    return SavedStream(
        view=BankView(supports, records),
        capacity=int(about["capacity"]),
        recent=int(about["recent"]),
        merges=int(about["merges"]),
        shape=StreamShape(
            grid=(grid[0], grid[1]),
            tokens_per_frame=int(about["tokens_per_frame"]),
            structure=Structure(**about["structure"]),
            merged=int(about["merged"]),
            dtype=getattr(torch, about["dtype"]),
        ),
        frame_size=(int(about["frame_size"][0]), int(about["frame_size"][1])),
        clock=tuple(map(float, about["clock"])),  # type: ignore[arg-type]  # three of them
        fps=float(about["fps"]),
        limits=dict(about["limits"]),
        status=StreamStatus(**{name: value for name, value in about["status"].items() if name in known}),
    )
