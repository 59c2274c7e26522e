"""Budgets of every segment in one launch: the pilot's response, the question's relevance, and integers that add up.

Plain torch: `aviot.methods.aviot.allocation.pilot_response`, `allocation_probabilities` and `integer_budgets`.
Compared by `tests/compressor/test_kernels.py`: `test_budgets`, `test_equal_signals_keep_their_order`.
"""

from aviot.methods.aviot.kernels.allocation.launch import AllocationSettings, allocate

__all__ = ["AllocationSettings", "allocate"]
