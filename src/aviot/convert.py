"""Names of the published compressor weights, converted to the names of this package."""

from collections.abc import Mapping

from torch import Tensor

PREFIX = "model.aviot_compressor."

_RENAMED = {
    "metric.phi.": "metric.embed.",
    "metric.h_theta.": "metric.weigh.",
    "multiscale_stage.region_position.": "region_position.",
    "multiscale_stage.joint_gate_mlp.": "gate.",
}
# Published tensors that are not used: the step is an argument in this package, the temperature follows from the step,
# and the published code does not use the balance target either.
_IGNORED = {"current_step", "allocation_temperature", "multiscale_stage.gate_balance_target"}


def compressor_name(published: str) -> str | None:
    """Return the name in this package of a published compressor tensor; None for a tensor that is not used."""
    if published in _IGNORED:
        return None
    for prefix, new_prefix in _RENAMED.items():
        if published.startswith(prefix):
            return new_prefix + published.removeprefix(prefix)
    return published


def compressor_weights(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of a `Compressor` from published weights.

    Takes all weights of a published model, of which those below `model.aviot_compressor.` are used, or the compressor's
    own weights without that prefix. Other names raise a ValueError that lists them.
    """
    if any(name.startswith(PREFIX) for name in published):
        published = {name.removeprefix(PREFIX): t for name, t in published.items() if name.startswith(PREFIX)}
    unknown = sorted(name for name in published if name not in _IGNORED and not name.startswith(tuple(_RENAMED)))
    if unknown:
        known = ", ".join(f"{prefix}*" for prefix in _RENAMED)
        raise ValueError(f"not published compressor weights: {', '.join(unknown)}; expected names like {known}")
    renamed = {compressor_name(name): tensor for name, tensor in published.items()}
    weights = {name: tensor for name, tensor in renamed.items() if name is not None}
    if not weights:
        raise ValueError(f"no compressor weights found; expected names below {PREFIX!r}, or without it")
    return weights
