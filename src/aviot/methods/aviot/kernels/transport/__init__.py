"""One granularity's transport, a few launches per round: move the supports, compute their costs, solve the coupling.

`launch` runs rounds without gradients, `plans` all granularities with the gradient of their last rounds.

Plain torch: `aviot.methods.aviot.level.start_rows`, `transport` and `finish`.
Compared by `tests/compressor/test_kernels.py`: `test_transport_of_frames_and_their_regions`; gradients by
`tests/compressor/test_kernels_plans.py`: `test_plans_and_their_gradients`.
"""

from aviot.methods.aviot.kernels.transport.launch import LevelRun, TransportInputs, transport_level
from aviot.methods.aviot.kernels.transport.plans import TransportPlans

__all__ = ["LevelRun", "TransportInputs", "TransportPlans", "transport_level"]
