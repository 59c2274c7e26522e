"""CUDA graphs: a compression of a shape that comes again is replayed, not launched kernel by kernel."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.compressor.compressor import Compressor
from aviot.ot.device import on_gpu

KEPT = 2  # graphs at a time: each holds its inputs and everything between them and its output


@dataclass(frozen=True)
class Captured:
    """A graph with the tensors it reads and the one it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    features: Tensor

    def run(self, inputs: dict[str, Tensor]) -> Tensor:
        """Copy the inputs in, replay, copy the output out."""
        for name, tensor in inputs.items():
            self.inputs[name].copy_(tensor)
        self.graph.replay()
        return self.features.clone()


class Replays:
    """Features of compressions without gradient and without record, from graphs where a shape was seen before.

    The first call of a shape runs as ever (and compiles its kernels), the second is captured, later ones are replayed.
    Graphs read the compressor's weights where they lie, so an optimizer's steps show; weights that move are a new key.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()
        self._graphs: OrderedDict[tuple[object, ...], Captured] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Replays"], tuple[()]]:
        """A copy of a model starts without graphs."""
        return Replays, ()

    @torch.no_grad()
    def features(
        self, compressor: Compressor, x: Float[Tensor, "*B T S D"], *, ratio: float, **companions: Tensor
    ) -> Float[Tensor, "*B K S D"]:
        """The compressed features; `companions` are the question and the relevance, if there are any."""
        inputs = {"x": x, **companions}
        if not on_gpu(x) or torch.cuda.is_current_stream_capturing():
            return compressor(**inputs, ratio=ratio).features
        key = (compressor, ratio, *((name, t.shape, t.dtype, t.device) for name, t in inputs.items()))
        key += tuple(weight.data_ptr() for weight in compressor.parameters())
        with self._lock:
            if key not in self._seen:
                self._seen.add(key)
                return compressor(**inputs, ratio=ratio).features
            captured = self._graphs.pop(key, None) or self._capture(compressor, inputs, ratio)
            self._graphs[key] = captured
            while len(self._graphs) > KEPT:
                self._graphs.popitem(last=False)
            return captured.run(inputs)

    def _capture(self, compressor: Compressor, inputs: dict[str, Tensor], ratio: float) -> Captured:
        with torch.inference_mode(False), torch.no_grad():
            static = {name: tensor.clone() for name, tensor in inputs.items()}
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize(inputs["x"].device)
            urgent = torch.cuda.Stream(priority=-1)  # what the compressor does aside gives way to the main line
            with torch.cuda.graph(graph, stream=urgent, capture_error_mode="thread_local"):  # other threads may go on
                features = compressor(**static, ratio=ratio).features
        return Captured(graph, static, features)
