"""The change of every patch from frame to frame, in one pass over the features.

Plain torch: `aviot.methods.aviot.objective.patch_motion`.
Compared by `tests/compressor/test_kernels_objective.py`: `test_patch_motion`.
"""

from aviot.methods.aviot.kernels.patch_motion.forward import patch_motion

__all__ = ["patch_motion"]
