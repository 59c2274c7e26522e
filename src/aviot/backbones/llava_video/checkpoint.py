"""Checkpoints of others: the published AVIOT layout and LLaVA-Video's, under our names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.errors import StrictDataclassError

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
from aviot.backbones.checkpoints.documents import read_json
from aviot.backbones.checkpoints.errors import CheckpointError, quoted, reason_of, shown
from aviot.backbones.checkpoints.foreign_code import refuse_foreign_code
from aviot.backbones.checkpoints.shards import Shards, check_floating
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.sizes import check_sizes
from aviot.convert import PREFIX, compressor_name

Layout = Literal["aviot", "published", "llava-video"]

# What only AVIOT adds; a LLaVA-Video checkpoint has none of it, and these parts start fresh.
FRESH = ("model.compressor.", "model.position.", "model.question_projection.")

FRESH_START = "%s is a LLaVA-Video checkpoint: positions, question projection and compressor start untrained."

_LAYOUT_OF_TYPE: Mapping[str, Layout] = {"aviot": "aviot", "aviot_qwen": "published", "llava_qwen": "llava-video"}
LAYOUTS = tuple(_LAYOUT_OF_TYPE)
"""Values of `model_type` that can be read."""

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
# After the last layer that is run: the encoder's final normalisation and its pooling head.
_UNUSED_VISION = re.compile(r"model\.vision_tower\.(post_layernorm|head)\.")
_VISION_LAYER = re.compile(r"model\.vision_tower\.encoder\.layers\.(\d{1,6})\.")
_MOST_NAMED = 20  # tensors that one sentence lists
_OF_ENCODER = ("model_type", "vision_use_head")  # decided here, whatever a published config says
_ENCODER_LAYERS = whole(2, MOST_LAYERS)  # the last is not run

# Settings that change the mathematics, with the one value that is implemented.
_FIXED: Mapping[str, Any] = {
    "mm_newline_position": "grid",
    "mm_projector_type": "mlp2x_gelu",
    "mm_spatial_pool_mode": "bilinear",
    "mm_vision_select_layer": -2,
    "multimodal_projector_type": "mlp2x_gelu",
    "spatial_pool_mode": "bilinear",
    "vision_select_layer": -1,
}
# Encoders that LLaVA checkpoints name without shipping their config.
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


@dataclass(frozen=True)
class Source:
    """A checkpoint folder, read as far as its JSON goes."""

    folder: Path
    layout: Layout
    config: AviotConfig


def read_source(folder: Path) -> Source:
    """Tell a folder's layout and make our config of its own; refuse code, kernels and adapters that it names."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint with config.json and safetensors")
    path = folder / "config.json"
    values = read_json(path)
    layout = _LAYOUT_OF_TYPE.get(str(values.get("model_type")))
    if layout is None:
        known = ", ".join(_LAYOUT_OF_TYPE)
        raise CheckpointError(f"{path}: model_type must be one of {known}, got {quoted(values.get('model_type'))}")
    refuse_foreign_code(folder)
    try:
        return Source(folder, layout, _config(folder, layout, values))
    except CheckpointError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, StrictDataclassError) as error:
        reason = _published_words(reason_of(error)) if layout == "published" else reason_of(error)
        raise CheckpointError(f"{path} does not describe a model ({type(error).__name__}: {reason})") from error


def _config(folder: Path, layout: Layout, values: Mapping[str, Any]) -> AviotConfig:
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
    joined = {name: text.pop(name) for name in ("dtype", "torch_dtype") if name in text}
    joined |= {name: text[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if name in text}
    strides = [given[name] for name in _STRIDES if name in given]
    stride = {"pool_stride": strides[-1]} if strides else {}
    loss = {"transport_loss_weight": given[_LOSS_WEIGHT]} if _LOSS_WEIGHT in given else {}
    config = AviotConfig(
        vision_config=_vision_config(folder, values),
        text_config=text,
        compressor_config=_compressor_config(given) if layout == "published" else {},
        tie_word_embeddings=text.get("tie_word_embeddings", False),
        **known_fields(stride | loss, model_rules()),
        **joined,
    )
    check_encoder(config.vision_config)
    check_decoder(config.text_config)
    return config


def our_name(name: str, layout: Layout, vision_layers: int) -> str | None:
    """A tensor's name here; None for what is stored and not needed."""
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


def our_names(source: Source, shards: Shards) -> dict[str, str]:
    """Return the stored name of every tensor that is needed, by our name of it."""
    layers = source.config.vision_config.num_hidden_layers
    named = {our_name(name, source.layout, layers): name for name in shards.shapes}
    return {ours: name for ours, name in named.items() if ours is not None}


def check_claims(source: Source, shards: Shards) -> None:
    """Refuse a config whose numbers are not those of the weights, before anything of that size is built."""
    shapes = {ours: shards.shapes[name] for ours, name in our_names(source, shards).items()}
    try:
        check_sizes(source.config, shapes)
    except ValueError as error:
        raise CheckpointError(f"{source.folder / 'config.json'} does not describe its weights: {error}") from error


def check_tensors(source: Source, shards: Shards, expected: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Stored name of each of our tensors; raises with every missing, unexpected and misshapen one by name."""
    stored = our_names(source, shards)
    optional = FRESH if source.layout == "llava-video" else ()
    if source.config.tie_word_embeddings:
        optional = (*optional, "lm_head.")
    missing = [name for name in expected if name not in stored and not name.startswith(tuple(optional))]
    unexpected = [stored[name] for name in stored if name not in expected]
    misshapen = [
        f"{shown(stored[name])} {shards.shapes[stored[name]]} (expected {shape})"
        for name, shape in expected.items()
        if name in stored and shards.shapes[stored[name]] != shape
    ]
    problems = [
        f"{kind}: {_listed(names)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("wrong shape", misshapen))
        if names
    ]
    if problems:
        raise CheckpointError(f"{source.folder} does not fit its config. " + ". ".join(problems))
    check_floating(shards, stored.values())
    return stored


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
_STRIDES = ("mm_spatial_pool_stride", "spatial_pool_stride")  # the latter counts where both are given
_LOSS_WEIGHT = "aviot_transport_loss_weight"


def _compressor_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The compressor's constants from a published config; executed global rounds are not the listed ones."""
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


def _published_words(reason: str) -> str:
    """Put the published name of a compressor's constant before a sentence that starts with ours."""
    ours = reason.partition(" ")[0]
    theirs = {name: published for group in _COMPRESSOR_GROUPS.values() for name, published in group.items()}
    theirs |= {**_COMPRESSOR, "rounds": f"{_GLOBAL_ROUNDS}, {_ROUNDS}", "parent_weights": ", ".join(_PARENT_WEIGHTS)}
    theirs |= {"pool_stride": _STRIDES[-1], "transport_loss_weight": _LOSS_WEIGHT}
    return f"{theirs[ours]}: {reason}" if ours in theirs else reason


def _vision_config(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The encoder's config with the layers that are run: all but the last."""
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
        vision = known_fields(vision, {name: rule for name, rule in vision_rules().items() if name not in _OF_ENCODER})
        known_fields({"num_hidden_layers": vision.get("num_hidden_layers")}, {"num_hidden_layers": _ENCODER_LAYERS})
    except ValueError as error:
        raise CheckpointError(f"{where} does not describe an encoder ({reason_of(error)})") from error
    layers = vision["num_hidden_layers"] - 1
    return vision | {"model_type": "siglip_vision_model", "vision_use_head": False, "num_hidden_layers": layers}


def _listed(names: Sequence[str]) -> str:
    listed = [shown(name) for name in sorted(names)[:_MOST_NAMED]]
    rest = len(names) - len(listed)
    return ", ".join(listed) + (f" and {rest:,} more" if rest else "")
