"""Checkpoints of others: the published AVIOT layout and LLaVA-Video's, under our names."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import snapshot_download
from huggingface_hub.errors import StrictDataclassError
from transformers import Qwen2Config

from aviot.convert import PREFIX, compressor_name
from aviot.models.configuration import AviotConfig
from aviot.models.shards import CheckpointError, Shards

Layout = Literal["aviot", "published", "llava-video"]

# What only AVIOT adds; a LLaVA-Video checkpoint has none of it, and these parts start fresh.
FRESH = ("model.compressor.", "model.position.", "model.question_projection.")

FRESH_START = "%s is a LLaVA-Video checkpoint: positions, question projection and compressor start untrained."

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FETCHED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_LAYOUT_OF_TYPE: Mapping[str, Layout] = {"aviot": "aviot", "aviot_qwen": "published", "llava_qwen": "llava-video"}
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
_VISION_LAYER = re.compile(r"model\.vision_tower\.encoder\.layers\.(\d+)\.")

# Everything a Qwen2 config knows, and the two names its rotary settings had before.
_TEXT_FIELDS = (set(Qwen2Config().to_dict()) | {"rope_theta", "rope_scaling"}) - {
    "architectures",
    "dtype",
    "model_type",
    "transformers_version",
    "_name_or_path",
}
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
    """Tell a folder's layout and make our config of its own."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint with config.json and safetensors")
    values = read_json(folder / "config.json")
    layout = _LAYOUT_OF_TYPE.get(str(values.get("model_type")))
    if layout is None:
        known = ", ".join(_LAYOUT_OF_TYPE)
        raise CheckpointError(f"{folder}: model_type must be one of {known}, got {values.get('model_type')!r}")
    try:
        return Source(folder, layout, _config(folder, layout, values))
    except CheckpointError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, StrictDataclassError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{folder / 'config.json'} does not describe a model ({reason})") from error


def resolve_folder(name: Any, *, revision: str | None = None, local_files_only: bool = False) -> Path:
    """A checkpoint's folder: the one named, or what the hub has under that id (only ids go to the network)."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    if not _HUB_ID.fullmatch(str(name)):
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint with config.json and safetensors")
    try:
        fetched = snapshot_download(
            str(name), revision=revision, local_files_only=local_files_only, allow_patterns=list(_FETCHED)
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name}: no such folder here, and the hub did not give it ({error})") from error
    return Path(fetched)


def _config(folder: Path, layout: Layout, values: Mapping[str, Any]) -> AviotConfig:
    if layout == "aviot":
        for name in ("text_config", "vision_config"):
            if not isinstance(values.get(name), dict):
                raise CheckpointError(f"{folder / 'config.json'}: {name} must be an object, got {values.get(name)!r}")
        return AviotConfig.from_dict(dict(values))
    for name, expected in _FIXED.items():
        if values.get(name, expected) != expected:
            raise CheckpointError(
                f"{folder}: {name} must be {expected!r}, got {values[name]!r}, which is not implemented"
            )
    text = {"model_type": "qwen2"} | {name: values[name] for name in _TEXT_FIELDS if values.get(name) is not None}
    compressor = _compressor_config(values) if layout == "published" else {}
    stride = values.get("spatial_pool_stride", values.get("mm_spatial_pool_stride", 2))
    return AviotConfig(
        vision_config=_vision_config(folder, values),
        text_config=text,
        compressor_config=compressor,
        pool_stride=stride,
        transport_loss_weight=values.get("aviot_transport_loss_weight", 1.0),
        tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
        bos_token_id=values.get("bos_token_id"),
        eos_token_id=values.get("eos_token_id"),
        pad_token_id=values.get("pad_token_id"),
        dtype=values.get("dtype", values.get("torch_dtype")),
    )


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
    if _UNUSED_VISION.match(name) or (layer and int(layer.group(1)) >= vision_layers):
        return None
    return name


def check_tensors(source: Source, shards: Shards, expected: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Stored name of each of our tensors; raises with every missing, unexpected and misshapen one by name."""
    layers = source.config.vision_config.num_hidden_layers
    stored = {}
    for name in shards.shapes:
        ours = our_name(name, source.layout, layers)
        if ours is not None:
            stored[ours] = name
    optional = FRESH if source.layout == "llava-video" else ()
    if source.config.tie_word_embeddings:
        optional = (*optional, "lm_head.")
    missing = [name for name in expected if name not in stored and not name.startswith(tuple(optional))]
    unexpected = [stored[name] for name in stored if name not in expected]
    misshapen = [
        f"{stored[name]} {shards.shapes[stored[name]]} (expected {shape})"
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
    return stored


def _compressor_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The compressor's constants from a published config; executed global rounds are not the listed ones."""
    regional = values.get("aviot_multiscale_refinement_rounds", [5, 2, 1])[1:]
    named = {
        "cost_dim": "aviot_cost_dim",
        "segments": "aviot_temporal_segments",
        "fractions": "aviot_progressive_ratios",
        "stage_multiple": "aviot_progressive_round_to",
        "epsilons": "aviot_multiscale_entropy",
        "warmup_steps": "aviot_multiscale_warmup_steps",
    }
    config = {ours: values[theirs] for ours, theirs in named.items() if theirs in values}
    if "aviot_global_refinement_rounds" in values:
        config["rounds"] = [values["aviot_global_refinement_rounds"], *regional]
    if "aviot_medium_parent_weight" in values:
        config["parent_weights"] = [values["aviot_medium_parent_weight"], values.get("aviot_local_parent_weight", 0.25)]
    groups = {
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
    for group, members in groups.items():
        config[group] = {ours: values[theirs] for ours, theirs in members.items() if theirs in values}
    return config


def _vision_config(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The encoder's config with the layers that are run: all but the last."""
    named = str(values.get("mm_vision_tower") or values.get("vision_tower") or "vision_tower")
    beside = folder / "vision_tower" / "config.json"
    if isinstance(values.get("vision_config"), dict):
        vision = dict(values["vision_config"])
    elif beside.is_file():
        whole = read_json(beside)
        vision = dict(whole.get("vision_config", whole))
    elif Path(named).name in _KNOWN_ENCODERS:
        vision = dict(_KNOWN_ENCODERS[Path(named).name])
    else:
        known = ", ".join(_KNOWN_ENCODERS)
        raise CheckpointError(
            f"{folder}: vision tower {named!r} is not known here (known: {known}); "
            f"put its config.json into {beside.parent}"
        )
    vision.pop("transformers_version", None)
    vision["model_type"] = "siglip_vision_model"
    vision["vision_use_head"] = False
    vision["num_hidden_layers"] -= 1
    return vision


def read_json(path: Path) -> dict[str, Any]:
    """One of a checkpoint's files; what is no JSON object is refused by its name."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; expected a checkpoint's config")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object, got {type(values).__name__}")
    return values


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
