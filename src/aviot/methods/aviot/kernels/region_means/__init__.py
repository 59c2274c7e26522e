"""Region means of all granularities: the finest from the features, the coarser from those where they nest.

Plain torch: `aviot.methods.aviot.regions.region_means`.
Compared by `tests/compressor/test_kernels.py`: `test_region_means`, `test_region_means_gradients`.
"""

from aviot.methods.aviot.kernels.region_means.launch import RegionMeans, region_means

__all__ = ["RegionMeans", "region_means"]
