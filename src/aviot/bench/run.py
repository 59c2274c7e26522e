"""One run of the benchmark: its settings, the check of the compressor, then the measurements."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aviot import methods
from aviot.bench.check import ODD, Checked, check_compressor
from aviot.bench.compressor import Setup, fresh_compressor, measure_alone, measure_scaling
from aviot.bench.methods import measure_methods
from aviot.bench.result import Result, Timeline, explain_slowdowns
from aviot.bench.sizes import FAMILY_SIZES, SIZES, Size, check_settings
from aviot.bench.timing import CPU, copy_bandwidth
from aviot.budget import Budget
from aviot.engine.base import Report
from aviot.methods.aviot import Compressor
from aviot.methods.registry import DEFAULT, check_name
from aviot.utils.machine import command_line, commit, machine, versions


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of one run.

    A `size` of None and a `dtype` of auto stand for the device's default, or for the checkpoint's own.
    """

    video: Path | None = None
    model: Path | None = None
    base: Path | None = None  # of a model that is an adapter; the recorded one if None
    size: str | None = None
    frames: tuple[int, ...] = (64,)
    ratios: tuple[float, ...] = (4.0, 10.0)
    methods: tuple[str, ...] = ()  # empty: `DEFAULT_METHODS`
    batches: tuple[int, ...] = (1,)
    device: torch.device = CPU
    dtype: str = "auto"
    compiled: bool = False
    repeats: int = 5
    backward: bool = False
    scaling: bool = False
    compressor_only: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(frames=self.frames, batches=self.batches, repeats=self.repeats, size=self.size, dtype=self.dtype)
        for ratio in self.ratios:
            Budget(ratio=ratio)
        for name in self.methods:
            check_name(name)
        if not self.ratios:
            raise ValueError("ratios must have at least one number above 1, got none; the default is 4 and 10")
        self._check_combination()

    def _check_combination(self) -> None:
        if self.model is None and self.base is not None:
            raise ValueError("a base is the model below an adapter; give the adapter as the model")
        if self.model is not None:
            if self.size is not None:
                raise ValueError("give a model or a size, not both; a checkpoint has its own size")
            if self.scaling or self.compressor_only:
                mode = "scaling" if self.scaling else "compressor_only"
                raise ValueError(f"{mode} measures random weights of a chosen size; leave the model out")
            if not self.model.is_dir():
                raise ValueError(f"{self.model}: no such folder; name the directory of a checkpoint on this machine")
        if self.compiled and not self.with_model:
            raise ValueError(
                "compiled is about the encoder of a whole model; leave it out, or scaling, compressor_only"
            )
        if self.size in FAMILY_SIZES and not self.with_model:
            raise ValueError(f"size {self.size} is a whole model; the compressor alone has {', '.join(SIZES)}")
        if self.scaling and self.compressor_only:
            raise ValueError("give scaling or compressor_only, not both; scaling measures the compressor alone too")
        if self.methods and self.scaling:
            raise ValueError("methods are chosen for the whole model, or for compressor_only; scaling has none")
        if self.methods and self.compressor_only and (self.backward or self.batches != (1,)):
            raise ValueError("methods alone are timed on one video at a time and forward only; leave batches, backward")
        if self.video is not None and not self.with_model:
            raise ValueError(
                "a video is read for the whole model only; leave it out, or leave out compressor_only and scaling"
            )
        if self.video is not None and not self.video.exists():
            raise ValueError(f"{self.video}: no file; name a video, or leave it out to use a generated clip")

    @property
    def with_model(self) -> bool:
        """True if the whole model is measured, which needs transformers."""
        return not (self.scaling or self.compressor_only)

    @property
    def warmup(self) -> int:
        """Number of untimed runs; a GPU's first runs also compile and select kernels and record graphs."""
        return 3 if self.device.type == "cuda" else 1

    @property
    def chosen_dtype(self) -> torch.dtype | None:
        """Type of weights and features; None stands for the checkpoint's."""
        if self.dtype != "auto":
            return torch.float32 if self.dtype == "float32" else torch.bfloat16
        if self.model is not None:
            return None
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def size_name(self) -> str:
        """Size of random weights: the chosen one, or the device's default."""
        return self.size or ("7b" if self.device.type == "cuda" else "tiny")

    @property
    def chosen_size(self) -> Size:
        """Shape of random weights."""
        return SIZES[self.size_name]


def run(options: Options, report: Report = lambda _: None) -> Result:
    """Run all measurements; raise CheckFailed before them if the compressor differs from the reference."""
    return _run_model(options, report) if options.with_model else _run_compressor(options, report)


def _run_compressor(options: Options, report: Report) -> Result:
    """Measure the compressor alone, or its scaling, without importing transformers."""
    config = options.chosen_size.compressor
    dtype = options.chosen_dtype or torch.float32
    compressor = fresh_compressor(config, options.device, dtype, options.seed)
    checks, setup = _prepare(options, compressor, dtype, report)
    model = f"random weights, {options.size_name}: {config.patches} patches, {config.dim} channels"
    if options.scaling:
        base = options.frames[0], options.ratios[0], options.batches[0]
        points, notes = measure_scaling(config, setup, *base, report)
        return _result(options, setup, checks, model, scaling=points, notes=notes)
    if options.methods:
        rows = measure_methods(options.methods, options.chosen_size, setup, options.frames, options.ratios, report)
        tokens = math.prod(options.chosen_size.token_grid)
        model = f"synthetic tokens: {tokens} per frame, {options.chosen_size.text.width} channels"
        return _result(options, setup, checks, model, rows=rows)
    rows, notes = measure_alone(compressor, setup, options.frames, options.batches, options.ratios, report)
    return _result(options, setup, checks, model, rows=rows, notes=notes)


def _run_model(options: Options, report: Report) -> Result:
    from aviot.bench.pipeline import measure_model
    from aviot.bench.workload import load_model, measure_decoding, random_lm

    report("build the model")
    if options.model is None:
        dtype = options.chosen_dtype or torch.float32
        lm = random_lm(options.size_name, options.device, dtype, options.seed)
        about = f"random weights, {options.size_name}"
    else:
        lm = load_model(options.model, options.device, options.chosen_dtype, options.base)
        about = str(options.model)
    if options.compiled:
        lm.backbone.compile_encoder()
    dtype = lm.backbone.model.dtype
    compressor = lm.backbone.parts.get("compressor") or fresh_compressor(ODD, options.device, dtype, options.seed)
    assert isinstance(compressor, Compressor)
    checks, setup = _prepare(options, compressor, dtype, report)
    report("decode")
    decoding = measure_decoding(options.video, options.frames, warmup=setup.warmup, repeats=setup.repeats)
    rows, notes = measure_model(lm, setup, options, report)
    size = options.size_name if options.model is None else None
    notes += explain_slowdowns(rows, size=size, device=options.device.type)
    timeline, refusal = _timeline(lm, options, setup, report)
    found = {"decoding": decoding, "rows": rows, "timeline": timeline, "notes": notes + refusal}
    return _result(options, setup, checks, about, **found)


def _timeline(lm: Any, options: Options, setup: Setup, report: Report) -> tuple[Timeline | None, tuple[str, ...]]:
    """Measure the way from the video to the first token with the first method and ratio, or say why there is none."""
    from aviot.bench.timeline import measure_timeline

    if options.video is None:
        return None, ()
    method = next((name for name in options.methods if methods.get(name).compresses), DEFAULT)
    report(f"{options.frames[0]} frames, from the file to the first token: {method}")
    ratio, frames = options.ratios[0], options.frames[0]
    try:
        return measure_timeline(lm, options.video, setup, method=method, ratio=ratio, frames=frames), ()
    except ValueError as error:
        return None, (f"no timeline from the file to the first token: {error}",)


def _prepare(
    options: Options, compressor: Compressor, dtype: torch.dtype, report: Report
) -> tuple[tuple[Checked, ...], Setup]:
    """Check the compressor against the reference, then measure the memory bandwidth."""
    report("check against the reference")
    generator = torch.Generator().manual_seed(options.seed)
    checks = check_compressor(compressor, dtype, generator=generator, backward=options.backward)
    report("memory bandwidth")
    bandwidth = copy_bandwidth(options.device, warmup=options.warmup, repeats=options.repeats)
    setup = Setup(
        device=options.device,
        dtype=dtype,
        warmup=options.warmup,
        repeats=options.repeats,
        bandwidth=bandwidth,
        backward=options.backward,
        seed=options.seed,
    )
    return checks, setup


def _result(options: Options, setup: Setup, checks: tuple[Checked, ...], model: str, **found: Any) -> Result:
    return Result(
        model=model,
        dtype=str(setup.dtype).removeprefix("torch."),
        machine=machine(setup.device),
        versions=versions(),
        commit=commit(),
        command=command_line(),
        seed=options.seed,
        warmup=setup.warmup,
        repeats=setup.repeats,
        bandwidth_gb_per_s=setup.bandwidth / 1e9,
        checks=checks,
        **found,
    )
