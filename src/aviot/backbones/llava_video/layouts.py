"""The layouts of checkpoints that can be read, and how the configs and tensor names of each become ours."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from aviot.backbones.checkpoints.config_fields import (
    MOST_LAYERS,
    check_decoder,
    check_encoder,
    known_fields,
    model_rules,
    text_rules,
    vision_rules,
    whole,
)
from aviot.backbones.checkpoints.folder import CheckpointError, quoted, read_json, reason_of
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.convert import PREFIX, compressor_name

Layout = Literal["aviot", "published", "llava-video"]

LAYOUT_OF_TYPE: Mapping[str, Layout] = {"aviot": "aviot", "aviot_qwen": "published", "llava_qwen": "llava-video"}
"""The layout of each `model_type` that can be read."""

_DECODER = {r"model\.(embed_tokens|layers|norm)\.": r"model.language_model.\1."}
_RENAMED: Mapping[Layout, Mapping[str, str]] = {
    "aviot": {},
    "published": {
        r"model\.aviot_query_projector\.": "model.question_projection.",
        r"model\.aviot_thw_position_encoder\.": "model.position.",
        r"model\.multimodal_projector\.": "model.connector.projector.",
        r"model\.video_row_separator$": "model.connector.row_separator",
        r"model\.vision_tower\.encoder\.vision_model\.": "model.vision_tower.",
        **_DECODER,
    },
    "llava-video": {
        r"model\.mm_projector\.": "model.connector.projector.",
        r"model\.image_newline$": "model.connector.row_separator",
        r"model\.vision_tower\.vision_tower\.vision_model\.": "model.vision_tower.",
        **_DECODER,
    },
}
# Weights after the last layer that is run: the encoder's final normalisation and its pooling head.
_UNUSED_VISION = re.compile(r"model\.vision_tower\.(post_layernorm|head)\.")
_VISION_LAYER = re.compile(r"model\.vision_tower\.encoder\.layers\.(\d{1,6})\.")
_SET_HERE = ("model_type", "vision_use_head")  # fields of an encoder that a published config does not decide
_ENCODER_LAYERS = whole(2, MOST_LAYERS)  # the last is not run

# Settings that change the computation, with the one value that is implemented.
_FIXED: Mapping[str, Any] = {
    "mm_newline_position": "grid",
    "mm_projector_type": "mlp2x_gelu",
    "mm_spatial_pool_mode": "bilinear",
    "mm_vision_select_layer": -2,
    "multimodal_projector_type": "mlp2x_gelu",
    "spatial_pool_mode": "bilinear",
    "vision_select_layer": -1,
}
# Encoders that LLaVA checkpoints name without including their config.
_KNOWN_ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "siglip-so400m-patch14-384": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 384,
        "patch_size": 14,
    }
}
_COMPRESSOR: Mapping[str, str] = {
    "cost_dim": "aviot_cost_dim",
    "segments": "aviot_temporal_segments",
    "fractions": "aviot_progressive_ratios",
    "stage_multiple": "aviot_progressive_round_to",
    "epsilons": "aviot_multiscale_entropy",
    "warmup_steps": "aviot_multiscale_warmup_steps",
}
_COMPRESSOR_GROUPS: Mapping[str, Mapping[str, str]] = {
    "transport": {
        "updates": "aviot_sinkhorn_iterations",
        "source_relaxation": "aviot_source_relaxation",
        "target_relaxation": "aviot_target_relaxation",
    },
    "allocation": {
        "relevance_weight": "aviot_question_allocation_weight",
        "initial_temperature": "aviot_allocation_temperature_initial",
        "final_temperature": "aviot_allocation_temperature_final",
    },
    "gate": {
        "hidden": "aviot_gate_hidden_size",
        "temperature": "aviot_gate_temperature",
        "global_floor": "aviot_gate_global_floor",
    },
    "position": {
        "bands": "aviot_thw_num_bands",
        "temporal_scale": "aviot_thw_temporal_scale",
        "spatial_scale": "aviot_thw_spatial_scale",
        "region_bands": "aviot_region_position_bands",
    },
    "objective": {
        "regional_weight": "aviot_regional_transport_weight",
        "continuity_weight": "aviot_continuity_weight",
        "continuity_scale": "aviot_continuity_scale",
        "variation_weight": "aviot_gate_tv_weight",
        "balance_weight": "aviot_gate_balance_weight",
        "entropy_weight": "aviot_gate_entropy_weight",
        "entropy_floor": "aviot_gate_entropy_floor",
    },
}
_GLOBAL_ROUNDS, _ROUNDS = "aviot_global_refinement_rounds", "aviot_multiscale_refinement_rounds"
_PARENT_WEIGHTS = ("aviot_medium_parent_weight", "aviot_local_parent_weight")
_STRIDES = ("mm_spatial_pool_stride", "spatial_pool_stride")  # the latter wins if both are given
_LOSS_WEIGHT = "aviot_transport_loss_weight"


def our_config(folder: Path, layout: Layout, values: Mapping[str, Any]) -> AviotConfig:
    """Return our config of a checkpoint whose config.json has these values."""
    if layout == "aviot":
        for name in ("text_config", "vision_config"):
            if not isinstance(values.get(name), dict):
                raise CheckpointError(
                    f"{folder / 'config.json'}: {name} must be an object, got {quoted(values.get(name))}"
                )
        return AviotConfig.from_dict(dict(values))
    for name, expected in _FIXED.items():
        if values.get(name, expected) != expected:
            found = f"got {quoted(values[name])}, which is not implemented"
            raise CheckpointError(f"{folder / 'config.json'}: {name} must be {expected!r}, {found}")
    given = {name: value for name, value in values.items() if value is not None and name != "model_type"}
    text = {"model_type": "qwen2"} | known_fields(given, text_rules())
    shared = {name: text.pop(name) for name in ("dtype", "torch_dtype") if name in text}
    shared |= {name: text[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if name in text}
    strides = [given[name] for name in _STRIDES if name in given]
    stride = {"pool_stride": strides[-1]} if strides else {}
    loss = {"transport_loss_weight": given[_LOSS_WEIGHT]} if _LOSS_WEIGHT in given else {}
    config = AviotConfig(
        vision_config=_vision_config(folder, values),
        text_config=text,
        compressor_config=_compressor_config(given) if layout == "published" else {},
        tie_word_embeddings=text.get("tie_word_embeddings", False),
        **known_fields(stride | loss, model_rules()),
        **shared,
    )
    check_encoder(config.vision_config)
    check_decoder(config.text_config)
    return config


def our_name(name: str, layout: Layout, vision_layers: int) -> str | None:
    """Return our name of a stored tensor; None if it is not needed."""
    if layout == "published" and name.startswith(PREFIX):
        renamed = compressor_name(name.removeprefix(PREFIX))
        return None if renamed is None else f"model.compressor.{renamed}"
    for pattern, replacement in _RENAMED[layout].items():
        name, count = re.subn(f"^{pattern}", replacement, name)
        if count:
            break
    layer = _VISION_LAYER.match(name)
    is_last = layer is not None and layout != "aviot" and int(layer.group(1)) == vision_layers
    return None if is_last or _UNUSED_VISION.match(name) else name


def _compressor_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compressor's constants from a published config, where global rounds have a field of their own."""
    config = {ours: values[theirs] for ours, theirs in _COMPRESSOR.items() if theirs in values}
    if _GLOBAL_ROUNDS in values:
        regional = values.get(_ROUNDS, [5, 2, 1])
        if not isinstance(regional, list):
            raise ValueError(f"{_ROUNDS} must be a list, got {quoted(regional)}")
        config["rounds"] = [values[_GLOBAL_ROUNDS], *regional[1:]]
    if _PARENT_WEIGHTS[0] in values:
        config["parent_weights"] = [values[_PARENT_WEIGHTS[0]], values.get(_PARENT_WEIGHTS[1], 0.25)]
    for group, members in _COMPRESSOR_GROUPS.items():
        config[group] = {ours: values[theirs] for ours, theirs in members.items() if theirs in values}
    return config


def published_reason(reason: str) -> str:
    """Put the published name of a constant before an error message that starts with our name of it."""
    ours = reason.partition(" ")[0]
    theirs = {name: published for group in _COMPRESSOR_GROUPS.values() for name, published in group.items()}
    theirs |= {**_COMPRESSOR, "rounds": f"{_GLOBAL_ROUNDS}, {_ROUNDS}", "parent_weights": ", ".join(_PARENT_WEIGHTS)}
    theirs |= {"pool_stride": _STRIDES[-1], "transport_loss_weight": _LOSS_WEIGHT}
    return f"{theirs[ours]}: {reason}" if ours in theirs else reason


def _vision_config(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the encoder's config with the number of layers that are run: all but the last."""
    named = str(values.get("mm_vision_tower") or values.get("vision_tower") or "vision_tower")
    where = beside = folder / "vision_tower" / "config.json"
    if isinstance(values.get("vision_config"), dict):
        where, vision = folder / "config.json", dict(values["vision_config"])
    elif beside.is_file():
        read = read_json(beside)
        vision = read.get("vision_config", read)
    elif Path(named).name in _KNOWN_ENCODERS:
        vision = dict(_KNOWN_ENCODERS[Path(named).name])
    else:
        known = ", ".join(_KNOWN_ENCODERS)
        raise CheckpointError(
            f"{folder / 'config.json'}: vision tower {quoted(named)} is not known here (known: {known}); "
            f"put its config.json into {beside.parent}"
        )
    if not isinstance(vision, dict):
        raise CheckpointError(f"{where}: vision_config must be an object, got {quoted(vision)}")
    try:
        vision = known_fields(vision, {name: rule for name, rule in vision_rules().items() if name not in _SET_HERE})
        known_fields({"num_hidden_layers": vision.get("num_hidden_layers")}, {"num_hidden_layers": _ENCODER_LAYERS})
    except ValueError as error:
        raise CheckpointError(f"{where} does not describe an encoder ({reason_of(error)})") from error
    layers = vision["num_hidden_layers"] - 1
    return vision | {"model_type": "siglip_vision_model", "vision_use_head": False, "num_hidden_layers": layers}
