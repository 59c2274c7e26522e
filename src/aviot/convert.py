"""Published weights under our names."""

from collections.abc import Mapping

from torch import Tensor

PREFIX = "model.aviot_compressor."

_RENAMED = {
    "metric.phi.": "metric.embed.",
    "metric.h_theta.": "metric.weigh.",
    "multiscale_stage.region_position.": "region_position.",
    "multiscale_stage.joint_gate_mlp.": "gate.",
}
# Stored with published weights, needed by nothing: the step is an argument here, the temperature follows from it, and
# the balance target is unused by the published code too.
_IGNORED = {"current_step", "allocation_temperature", "multiscale_stage.gate_balance_target"}


def compressor_weights(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A `Compressor`'s state dict from published names.

    Takes a whole published model (everything below `model.aviot_compressor.` is picked out) or the compressor's own
    tensors without that prefix. Any other name is an error that lists it.
    """
    if any(name.startswith(PREFIX) for name in published):
        published = {name.removeprefix(PREFIX): t for name, t in published.items() if name.startswith(PREFIX)}
    weights: dict[str, Tensor] = {}
    unknown = []
    for name, tensor in published.items():
        prefix = next((prefix for prefix in _RENAMED if name.startswith(prefix)), None)
        if prefix is not None:
            weights[_RENAMED[prefix] + name.removeprefix(prefix)] = tensor
        elif name not in _IGNORED:
            unknown.append(name)
    if unknown:
        known = ", ".join(f"{prefix}*" for prefix in _RENAMED)
        raise ValueError(f"not published compressor weights: {', '.join(sorted(unknown))}; expected names like {known}")
    if not weights:
        raise ValueError(f"no compressor weights found; expected names below {PREFIX!r}, or without it")
    return weights
