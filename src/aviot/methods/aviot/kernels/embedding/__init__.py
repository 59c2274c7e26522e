"""The transport space's coordinates: w(q) * phi(x) = w * LayerNorm(W2 gelu(W1 x + b1) + b2), of sources and supports.

The matrix products are the library's (`kernels.split_half_matmul`). The kernels here write the rows that go in and
finish those that come out. Gradients go through `kernels.transport.backward`, together with those of the coupling.

Plain torch: `aviot.methods.aviot.regions.descriptors`, `aviot.methods.aviot.metric.Metric.lift` and `Metric.place`.
Compared by `tests/compressor/test_kernels.py`: `test_embedding`.
"""

from aviot.methods.aviot.kernels.embedding.launch import MetricWeights, activate, embed_sources

__all__ = ["MetricWeights", "activate", "embed_sources"]
