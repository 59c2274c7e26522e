"""Triton kernels of a stage, one package per operation: forward, backward, launch.

Each package's docstring names its plain-torch reference in `aviot.methods.aviot` and the test that compares the two; on
a machine without a GPU the tests run in Triton's interpreter. `common` holds host code and `device_functions` Triton
functions that several operations use; `objective` combines the kernels of the loss.
"""
