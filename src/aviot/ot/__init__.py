"""Entropy-regularised optimal transport: the solver and its couplings. Independent of video."""

from aviot.ot.coupling import Coupling, plogp
from aviot.ot.solver import Relaxation, scale_cost, solve

__all__ = ["Coupling", "Relaxation", "plogp", "scale_cost", "solve"]
