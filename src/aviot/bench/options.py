"""What is to be measured, checked before anything is built."""

from dataclasses import dataclass
from pathlib import Path

import torch

from aviot.bench.measured import check_measured
from aviot.bench.sizes import SIZES, Size
from aviot.budget import Budget
from aviot.methods.registry import check_name

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The wishes of one run; `size` and `dtype` None mean the device's default, or the checkpoint's own."""

    video: Path | None = None
    model: Path | None = None
    size: str | None = None
    frames: tuple[int, ...] = (64,)
    ratios: tuple[float, ...] = (4.0, 10.0)
    methods: tuple[str, ...] = ()  # none: those that are timed unless others are asked for
    batches: tuple[int, ...] = (1,)
    device: torch.device = CPU
    dtype: str = "auto"
    repeats: int = 5
    backward: bool = False
    scaling: bool = False
    compressor_only: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_measured(frames=self.frames, batches=self.batches, repeats=self.repeats, size=self.size, dtype=self.dtype)
        for ratio in self.ratios:
            Budget(ratio=ratio)
        for name in self.methods:
            check_name(name)
        if not self.ratios:
            raise ValueError("ratios must hold at least one number above 1, got none; leave --ratio out for 4 and 10")
        self._check_combination()

    def _check_combination(self) -> None:
        if self.model is not None:
            if self.size is not None:
                raise ValueError("give --model or --size, not both; a checkpoint has its own size")
            if self.scaling or self.compressor_only:
                mode = "--scaling" if self.scaling else "--compressor-only"
                raise ValueError(f"{mode} measures random weights of a chosen size; leave --model out")
            if not self.model.is_dir():
                raise ValueError(f"{self.model}: no such folder; --model names a checkpoint on this machine")
        if self.scaling and self.compressor_only:
            raise ValueError("give --scaling or --compressor-only, not both; scaling measures the compressor alone too")
        if self.methods and not self.with_model:
            raise ValueError("methods are chosen for the whole model only; leave them out")
        if self.video is not None and not self.with_model:
            raise ValueError(
                "a video is read for the whole model only; leave it out, or leave out --compressor-only and --scaling"
            )
        if self.video is not None and not self.video.exists():
            raise ValueError(f"{self.video}: no file; name a video, or leave it out and one is made up")

    @property
    def with_model(self) -> bool:
        """Whether the whole model is measured, which needs transformers."""
        return not (self.scaling or self.compressor_only)

    @property
    def warmup(self) -> int:
        """Runs before the timed ones; a GPU's first ones also compile, choose kernels and record graphs."""
        return 3 if self.device.type == "cuda" else 1

    @property
    def chosen_dtype(self) -> torch.dtype | None:
        """The weights' and features' type; None: the checkpoint's."""
        if self.dtype != "auto":
            return torch.float32 if self.dtype == "float32" else torch.bfloat16
        if self.model is not None:
            return None
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def size_name(self) -> str:
        """Random weights' size: what was asked for, else one that suits the device."""
        return self.size or ("7b" if self.device.type == "cuda" else "tiny")

    @property
    def chosen_size(self) -> Size:
        """The shape of random weights."""
        return SIZES[self.size_name]
