"""One run: build, check, measure the memory's speed, then time."""

from typing import Any

import torch

from aviot.bench.alone import Setup, Tell, fresh_compressor, measure_alone
from aviot.bench.bandwidth import copy_bandwidth
from aviot.bench.check import ODD, Checked, check_compressor
from aviot.bench.decoding import measure_decoding
from aviot.bench.explanation import explain
from aviot.bench.options import Options
from aviot.bench.result import Result
from aviot.bench.scaling import measure_scaling
from aviot.methods.aviot import Compressor
from aviot.utils.machine import command_line, commit, machine, versions


def run(options: Options, tell: Tell = lambda _: None) -> Result:
    """Measure what the options ask for; raises CheckFailed, before anything is timed, if the answers are wrong."""
    return _run_model(options, tell) if options.with_model else _run_compressor(options, tell)


def _run_compressor(options: Options, tell: Tell) -> Result:
    """The compressor alone, or its scaling; nothing here imports transformers."""
    config = options.chosen_size.compressor
    dtype = options.chosen_dtype or torch.float32
    compressor = fresh_compressor(config, options.device, dtype, options.seed)
    checks, setup = _prepare(options, compressor, dtype, tell)
    model = f"random weights, {options.size_name}: {config.patches} patches, {config.dim} channels"
    if options.scaling:
        base = options.frames[0], options.ratios[0], options.batches[0]
        points, notes = measure_scaling(config, setup, *base, tell)
        return _result(options, setup, checks, model, scaling=points, notes=notes)
    rows, notes = measure_alone(compressor, setup, options.frames, options.batches, options.ratios, tell)
    return _result(options, setup, checks, model, rows=rows, notes=notes)


def _run_model(options: Options, tell: Tell) -> Result:
    from aviot.bench.pipeline import measure_model
    from aviot.bench.workload import load_model, random_model
    from aviot.session import VideoLM

    tell("build the model")
    if options.model is None:
        dtype = options.chosen_dtype or torch.float32
        lm = VideoLM(random_model(options.chosen_size, options.device, dtype, options.seed))
        about = f"random weights, {options.size_name}"
    else:
        lm = load_model(options.model, options.device, options.chosen_dtype)
        about = str(options.model)
    dtype = lm.backbone.model.dtype
    compressor = lm.backbone.parts.get("compressor") or fresh_compressor(ODD, options.device, dtype, options.seed)
    assert isinstance(compressor, Compressor)
    checks, setup = _prepare(options, compressor, dtype, tell)
    tell("decode")
    decoding = measure_decoding(options.video, options.frames, warmup=setup.warmup, repeats=setup.repeats)
    rows, notes = measure_model(lm, setup, options, tell)
    size = options.size_name if options.model is None else None
    notes += explain(rows, size=size, device=options.device.type)
    return _result(options, setup, checks, about, decoding=decoding, rows=rows, notes=notes)


def _prepare(
    options: Options, compressor: Compressor, dtype: torch.dtype, tell: Tell
) -> tuple[tuple[Checked, ...], Setup]:
    """First the answers, then the memory's speed."""
    tell("check against the reference")
    generator = torch.Generator().manual_seed(options.seed)
    checks = check_compressor(compressor, dtype, generator=generator, backward=options.backward)
    tell("memory bandwidth")
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
