"""Linear maps in float32 precision on tensor cores, from factors of 16 bits, which take half the time of 32.

Each factor is scaled by a power of two, a row's own or the whole matrix's, until its largest number is below one, and
given as the nearest half and a second half for the remainder, which is within 2^-25 of it. Rows come as [top, rest] and
a map as [[top, rest], [top, rest]], so one product has all four parts, in two blocks of columns that add up.

Plain torch: `torch.nn.functional.linear` in float64.
Compared by `tests/compressor/test_kernels.py`: `test_a_map_in_halves_is_the_map_to_float32_precision`.
"""

from aviot.methods.aviot.kernels.split_half_matmul.launch import SplitMap, SplitRows

__all__ = ["SplitMap", "SplitRows"]
