"""CUDA graphs: work on tensors of repeated shapes is replayed, not launched kernel by kernel."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from aviot.ot.device import on_gpu

# Graphs in memory at a time. Each holds its inputs, outputs and intermediate tensors until it is dropped. The model's
# path from 224 frames of 729 x 1152 in bf16 to tokens holds about 2 GB: 0.4 of features, 0.4 with positions, 0.3 of the
# projector's hidden layer, 0.7 of the compression, 0.2 of pooled and final tokens; four videos in one call hold 7 GB.
MAX_GRAPHS = 2


class Clonable(Protocol):
    """A tensor, or a group of tensors that is copied as one."""

    def clone(self) -> Self:
        """Copy every tensor; other fields depend on shapes alone and are shared."""
        ...


Output = TypeVar("Output", bound=Clonable)


@dataclass(frozen=True)
class Captured(Generic[Output]):
    """A captured graph with its input and output tensors."""

    graph: torch.cuda.CUDAGraph
    device: torch.device
    inputs: dict[str, Tensor]
    output: Output
    done: torch.cuda.Event  # end of the last run: the next one, perhaps on another stream, overwrites the inputs

    def run(self, inputs: Mapping[str, Tensor]) -> Output:
        """Copy the inputs in, replay, copy the output out."""
        with torch.cuda.device(self.device):
            self.done.wait()
            for name, tensor in inputs.items():
                self.inputs[name].copy_(tensor)
            self.graph.replay()
            output = self.output.clone()
            self.done.record()
        return output


class Replays:
    """A cache of CUDA graphs for work without gradients.

    The first call of a key runs normally (and compiles its kernels), the second is captured, later ones are replayed.
    Graphs read weights at their addresses, so optimizer steps take effect; weights at new addresses are a new key.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[Hashable, ...]] = set()
        self._graphs: OrderedDict[tuple[Hashable, ...], Captured[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Replays"], tuple[()]]:
        """Copy without graphs."""
        return Replays, ()

    @torch.no_grad()
    def run(
        self,
        work: Callable[..., Output],
        inputs: Mapping[str, Tensor],
        *,
        key: tuple[Hashable, ...],
        modules: Sequence[nn.Module],
    ) -> Output:
        """Return work(**inputs), which must not synchronise with the host.

        `modules` are those whose weights it uses; `key` identifies the work and everything else it depends on.
        """
        parts = [part for module in modules for part in module.modules()]
        if not replayable(next(iter(inputs.values())), parts):
            return work(**inputs)
        whole = (*key, *modules, *_circumstances(inputs, parts))
        with self._lock:
            if whole not in self._seen:
                self._seen.add(whole)
                return work(**inputs)
            captured = self._graphs.pop(whole, None) or capture(work, inputs)
            self._graphs[whole] = captured
            while len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
            return captured.run(inputs)


def replayable(x: Tensor, parts: Sequence[nn.Module]) -> bool:
    """Return True if a graph can replace work on tensors like x by these modules (each without its submodules).

    Not without a GPU, nor inside another capture or an autocast, which caches cast weights of its own; nor where a
    module is wrapped (a hook would run only during capture) or its weights are on another device.
    """
    if not on_gpu(x) or torch.cuda.is_current_stream_capturing() or torch.is_autocast_enabled("cuda"):
        return False
    wrapped = any(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts)
    return not wrapped and all(weight.device == x.device for weight in _weights(parts))


def capture(work: Callable[..., Output], inputs: Mapping[str, Tensor]) -> Captured[Output]:
    """Capture a graph of the work, which reads copies of the inputs."""
    device = next(iter(inputs.values())).device
    with torch.inference_mode(False), torch.no_grad(), torch.cuda.device(device):
        static = {name: tensor.clone() for name, tensor in inputs.items()}
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph, stream=_stream(device), capture_error_mode="thread_local"):  # others may go on
            output = work(**static)
        return Captured(graph, device, static, output, torch.cuda.Event())


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which a device's graphs are captured, of higher priority than side streams inside them.

    One for all graphs, since the matrix library keeps a workspace for each stream it was called on.
    """
    return torch.cuda.Stream(device, priority=-1)


def _circumstances(inputs: Mapping[str, Tensor], parts: Sequence[nn.Module]) -> Iterator[Hashable]:
    """Yield what a graph fixes beside its work: shapes and types, the products' precision, the weights' addresses."""
    for name, tensor in inputs.items():
        yield name, tensor.shape, tensor.dtype, tensor.device
    yield torch.backends.cuda.matmul.fp32_precision
    for weight in _weights(parts):
        yield weight.data_ptr()


def _weights(parts: Sequence[nn.Module]) -> Iterator[Tensor]:
    """Yield the modules' own weights; `Module.parameters` would take as long as the rest of a lookup."""
    return (weight for part in parts for weight in part._parameters.values() if weight is not None)
