"""Gram matrices of a patch's sources: all that lengths and distances of their mixtures need of the features.

A mixture's squared length is a quadratic form of its Gram matrix, w G w, for every plan. So the features are read for
them before the plans are known, beside the transport, whose rounds are short and leave most of a GPU idle.

Plain torch: inside `aviot.methods.aviot.statistics.branch_moments`.
Compared by `tests/compressor/test_kernels_fusion.py`: `test_moments`, through `kernels.branch_moments`.
"""

from aviot.methods.aviot.kernels.gram.launch import GramMatrices

__all__ = ["GramMatrices"]
