"""The sums over gates that the objective's gate terms are computed from, in one pass.

Plain torch: `aviot.methods.aviot.objective.gate_variation`, `gate_balance` and `gate_entropy_shortfall`.
Compared by `tests/compressor/test_kernels_objective.py`: `test_gates`.
"""

from aviot.methods.aviot.kernels.gate_terms.launch import GateMeans

__all__ = ["GateMeans"]
