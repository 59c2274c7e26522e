"""Squared lengths and distances of all branches at every support and position, as forms of the sources' Gram matrices.

Rows sum to one, so with a pivot o and v_i = x_i - o, ||sum w x||^2 = w G w + sum w (2 v o + o o), and the distance of
two mixtures of one segment is the form of the difference of their rows.

Plain torch: `aviot.methods.aviot.statistics.branch_moments`.
Compared by `tests/compressor/test_kernels_fusion.py`: `test_moments`, `test_small_changes_of_large_features_are_seen`.
"""

from aviot.methods.aviot.kernels.branch_moments.launch import branch_moments

__all__ = ["branch_moments"]
