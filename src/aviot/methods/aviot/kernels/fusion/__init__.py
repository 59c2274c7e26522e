"""The fused output: every support at every position as a mixture of its segment's sources.

Plain torch: `aviot.methods.aviot.fusion.combine` and `aviot.methods.aviot.segments.Layout.mix`.
Compared by `tests/compressor/test_kernels_fusion.py`: `test_mixing_plans`, `test_mixing_and_its_gradients`.
"""

from aviot.methods.aviot.kernels.fusion.launch import FusedFeatures, mix_sources

__all__ = ["FusedFeatures", "mix_sources"]
