"""A stage's steps as Triton kernels: no host synchronisation, few launches, each feature read a few times.

Every kernel has its plain torch counterpart beside it in `aviot.methods.aviot`, which the tests hold it against; on a
machine without a GPU they run in Triton's interpreter.
"""
