"""Vision features plus their positions' residual, rounded once, in one pass; no backward pass.

Plain torch: `aviot.methods.aviot.position.add_residual`.
Compared by `tests/models/test_model_kernels.py`: `test_positions_are_added_in_the_same_order`.
"""

from aviot.methods.aviot.kernels.position_residual.forward import add_residual

__all__ = ["add_residual"]
