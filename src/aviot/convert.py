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


def compressor_name(published: str) -> str | None:
    """Our name of a published compressor tensor; None for what is stored and not needed."""
    if published in _IGNORED:
        return None
    for prefix, ours in _RENAMED.items():
        if published.startswith(prefix):
            return ours + published.removeprefix(prefix)
    return published


def compressor_weights(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A `Compressor`'s state dict from published names.

    Takes a whole published model (everything below `model.aviot_compressor.` is picked out) or the compressor's own
    tensors without that prefix. Any other name is an error that lists it.
    """
    if any(name.startswith(PREFIX) for name in published):
        published = {name.removeprefix(PREFIX): t for name, t in published.items() if name.startswith(PREFIX)}
    unknown = sorted(name for name in published if name not in _IGNORED and not name.startswith(tuple(_RENAMED)))
    if unknown:
        known = ", ".join(f"{prefix}*" for prefix in _RENAMED)
        raise ValueError(f"not published compressor weights: {', '.join(unknown)}; expected names like {known}")
    named = {compressor_name(name): tensor for name, tensor in published.items()}
    weights = {name: tensor for name, tensor in named.items() if name is not None}
    if not weights:
        raise ValueError(f"no compressor weights found; expected names below {PREFIX!r}, or without it")
    return weights
