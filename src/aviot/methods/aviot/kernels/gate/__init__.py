"""Statistics, gate and fusion weights of all supports at a position, in one launch.

Plain torch: `aviot.methods.aviot.statistics.gate_statistics` and `aviot.methods.aviot.fusion.gate_weights`.
Compared by `tests/compressor/test_kernels_fusion.py`: `test_statistics_and_gate`, `test_gradients_of_the_gate`.
"""

from aviot.methods.aviot.kernels.gate.launch import GateInputs, Gates, gate_statistics

__all__ = ["GateInputs", "Gates", "gate_statistics"]
