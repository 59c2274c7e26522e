"""The distortion of every segment's plan as forms of its sources' products; one kernel for both directions.

With G the products of a segment's sources, s_j = m_j / (m_j + delta) and z_j = s_j sum_i A_ij x_i,
|x_i - z_j|^2 = G_ii - 2 s_j (A G)_ji + s_j^2 (A G A)_jj. The products are float64, in which those of float32 numbers
are exact, so that nothing is lost where points nearly coincide far from the origin.

Plain torch: `aviot.methods.aviot.objective.distortion`.
Compared by `tests/compressor/test_kernels_objective.py`: `test_distortion`.
"""

from aviot.methods.aviot.kernels.distortion.launch import Distortion

__all__ = ["Distortion"]
