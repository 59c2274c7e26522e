"""Divergence of neighbouring regions' plans, and how alike the regions look.

Plain torch: `aviot.methods.aviot.objective.continuity`.
Compared by `tests/compressor/test_kernels_objective.py`: `test_continuity`.
"""

from aviot.methods.aviot.kernels.continuity.launch import PlanDivergence, edge_weights

__all__ = ["PlanDivergence", "edge_weights"]
