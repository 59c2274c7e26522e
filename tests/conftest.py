import importlib.util
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported: kernels run on a CPU, statement by statement
from common import CASES, DEVICE, GOLDEN
from hypothesis import settings
from safetensors.torch import load_file
from torch import Tensor

import aviot.methods
import aviot.ot
from aviot import Compression, Compressor, CompressorConfig
from aviot.convert import compressor_weights

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, and every process of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")

# Comparisons with the families' own processors, which need torchvision: make processors
collect_ignore = [] if importlib.util.find_spec("torchvision") else ["processors"]


MEASURED = (
    "compressor",
    "methods",
    "models/test_model.py",
    "models/test_model_kernels.py",
    "ot",
    "test_golden.py",
)
"""Tests that `make test` traces: its gate is about transport and methods. `make test-all` traces all but `untraced`."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import what is measured while it is traced: an untraced test that imported it first would hide its definitions.

    Beside -n, the process of the command does so for all workers.
    """
    if running_coverage() is not None and not hasattr(session.config, "workerinput"):
        for package in (aviot.methods, aviot.ot):
            for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                with suppress(ModuleNotFoundError):  # Triton is for Linux alone
                    importlib.import_module(module.name)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Stop tracing for a test that is not measured and its fixtures, which takes up to half of their time.

    pytest-cov's `no_cover` does not: beside -n, its own measurement of the worker lies on that of the command, which
    goes on as soon as the upper one is stopped.
    """
    stopped = [] if is_measured(item) else stop_tracing()
    try:
        return (yield)
    finally:
        for each in reversed(stopped):
            each.start()


def stop_tracing() -> list[Any]:
    """Stop all measurements of coverage; return them, the latest first."""
    stopped = []
    while (running := running_coverage()) is not None:
        running.stop()
        stopped.append(running)
    return stopped


def running_coverage() -> Any:
    """Return the latest measurement of coverage that is running, or None."""
    package = sys.modules.get("coverage")  # imported where there is one
    return None if package is None else package.Coverage.current()


def is_measured(item: pytest.Item) -> bool:
    """Return whether a test counts for the coverage."""
    if item.get_closest_marker("untraced"):
        return False
    return os.environ.get("COVER") == "all" or str(item.path.relative_to(Path(__file__).parent)).startswith(MEASURED)


WAITING = ("corpus", "fuzz", "training")
"""Tests that start processes and wait for them: begun first, so that none is left over when the others have ended."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked gpu run only where there is one, and those that wait run first."""
    items.sort(key=lambda item: item.path.relative_to(Path(__file__).parent).parts[0] not in WAITING)
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def _full_precision():
    """TF32, torch's default for convolutions on a GPU, would round factors to ten bits; tests compare with a CPU."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(scope="session")
def tokenizer():
    """The small model's tokenizer; training one takes seconds."""
    from aviot_lab.demo_model.tokenizer import build_tokenizer

    return build_tokenizer()


@dataclass(frozen=True)
class GoldenCase:
    """One published case and our compressor with its weights."""

    case: dict
    tensors: dict[str, Tensor]
    compressor: Compressor

    def published(self, prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}

    def run(self, **changes) -> Compression:
        t = self.tensors
        inputs = {"question": t["q"], "relevance": t.get("relevance"), "motion": t["u"]}
        inputs |= {"ratio": self.case["ratio"], "step": self.case["step"]} | changes
        return self.compressor(inputs.pop("x", t["x"]), **inputs)


@cache
def _tensors(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / f"{name}.safetensors")


@pytest.fixture
def golden():
    """Loads a golden case by name, with fresh tensors and a fresh compressor."""

    def load(name: str, **config) -> GoldenCase:
        case = CASES[name]
        tensors = {key: value.clone() for key, value in _tensors(name).items()}
        compressor = Compressor(CompressorConfig(dim=case["dim"], cost_dim=case["cost_dim"], **config))
        loaded = GoldenCase(case, tensors, compressor)
        compressor.load_state_dict(compressor_weights(loaded.published("weights.")))
        return loaded

    return load


@pytest.fixture
def interpreted_once(monkeypatch):
    """Keep what Triton's interpreter works out anew each time: its language at a helper's call, numpy's types."""
    if torch.cuda.is_available():
        return
    from triton.runtime import interpreter

    patch, np_dtype = interpreter._patch_lang, interpreter._get_np_dtype
    languages, np_dtypes = {}, {}

    def language_of(function):
        place = function.__module__
        if place not in languages:
            here = [id(value) for value in function.__globals__.values()]
            languages[place] = [each for each in (interpreter.tl, interpreter.tl.core) if id(each) in here]
        return languages[place]

    def np_dtype_once(of):
        element = of.element_ty if isinstance(of, interpreter.tl.block_type) else of
        name = "pointer" if isinstance(element, interpreter.tl.pointer_type) else element.name
        if name not in np_dtypes:
            np_dtypes[name] = np_dtype(of)
        return np_dtypes[name]

    def patch_once(function):
        language = language_of(function)
        if language and all(each.static_print is print for each in language):  # what the interpreter makes of it
            return interpreter._LangPatchScope()
        return patch(function)

    monkeypatch.setattr(interpreter, "_patch_lang", patch_once)
    monkeypatch.setattr(interpreter, "_get_np_dtype", np_dtype_once)


@pytest.fixture
def fenced(monkeypatch, interpreted_once):
    """In Triton's interpreter, a kernel that reaches outside the tensors it was given fails."""
    if torch.cuda.is_available():
        return
    import numpy
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    given = GridExecutor._init_args_hst
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    fences = numpy.empty((0, 2), dtype=numpy.uint64)

    def init_args(self, args, kwargs):
        nonlocal fences
        host = given(self, args, kwargs)
        memory = [each.untyped_storage() for each in (*host[0], *host[1].values()) if isinstance(each, Tensor)]
        ends = [(each.data_ptr(), each.data_ptr() + each.nbytes()) for each in memory]
        fences = numpy.array(ends, dtype=numpy.uint64)
        return host

    def check(pointers, mask):
        reached = pointers.data[mask.data.astype(bool)].reshape(-1, 1)
        inside = (reached >= fences[:, 0]) & (reached < fences[:, 1])
        assert inside.any(1).all(), "a kernel reached outside the tensors it was given"

    def masked_load(self, pointers, mask, *rest):
        check(pointers, mask)
        return load(self, pointers, mask, *rest)

    def masked_store(self, pointers, value, mask, *rest):
        check(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    monkeypatch.setattr(GridExecutor, "_init_args_hst", init_args)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", masked_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", masked_store)


@pytest.fixture
def poisoned(fenced):
    """Memory that nobody has written holds NaN, so that reading it shows."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(7, device=DEVICE).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.fixture
def bf16_products(monkeypatch):
    """Triton's interpreter keeps bfloat16 as whole numbers and would multiply those; widen them first."""
    if torch.cuda.is_available():
        return
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(handle: TensorHandle) -> TensorHandle:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype("uint32") << 16).view("float32"), tl.float32)

    def create_dot(self, a, b, *rest):
        return multiply(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
