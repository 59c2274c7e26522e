"""Triton kernels of a stage, one package per operation: forward, backward, launch.

Each package's docstring names its plain-torch reference in `aviot.methods.aviot` and the test that compares the two; on
a machine without a GPU the tests run in Triton's interpreter. `common` holds host code and `device_functions` Triton
functions that several operations use; `objective` combines the kernels of the loss.

Names of the kernels' compile-time sizes end in B, for block: the number of values that one program holds along an axis,
a power of two, of which those beyond the axis are masked. The letter before it is the axis:

- MB segments, NB sources, KB supports, LB levels
- CB channels of the transport space, DB channels of the features, QB channels of the question
- FB inputs and HB hidden units of the gate
- PB and SB patches of one program (in `gram`, SB is a problem's number of slots for sources), RB rows of one step
- TB rows or columns of a tile, VB vectors of a tile, OB points of the other side: supports for sources, and sources for
  supports

In loops, a lower-case letter is the index along its axis: `i` a source, `j` a support, `c` and `d` channels.
"""
