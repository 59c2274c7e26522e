"""Pairwise squared distances by direct differences, a tile of pairs at a time.

Plain torch: `torch.cdist` in `aviot.methods.aviot.numerics.squared_distances`, which also has the backward pass.
Compared by `tests/models/test_model_kernels.py`: `test_distances_of_points_far_from_the_origin`.
"""

from aviot.methods.aviot.kernels.squared_distances.forward import squared_distances

__all__ = ["squared_distances"]
