"""Why a checkpoint belongs to no family: it is a text model, reads images only, or is of an unknown or newer kind."""

import json
from collections.abc import Mapping
from typing import Any

from aviot.backbones.checkpoints.folder import shown
from aviot.backbones.checkpoints.versions import newer_version

ENDING = "give a checkpoint of a family that reads video"


def why_unknown(config: Mapping[str, Any]) -> str:
    """Return why no family reads a checkpoint with this config.json, ready for a list of those that there are."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    kind = config.get("model_type")
    name = f"config.json has model_type {shown(json.dumps(kind))}"
    if "auto_map" in config:
        return (
            f"{name} and names code of its own to run (auto_map), which is never run here; take this model's "
            f"checkpoint in the layout of transformers, often named -hf, or {ENDING}"
        )
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        version = newer_version(config)
        if version is None:
            return f"{name}, which no family can read; {ENDING}"
        return (
            f"{name}, which the transformers installed here does not know; it was written by the newer "
            f"{shown(version)}: upgrade transformers, or {ENDING}"
        )
    described = CONFIG_MAPPING[kind]
    if described in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        model = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[described]
        fields = getattr(described, "__dataclass_fields__", ())
        if not hasattr(model, "get_video_features") and not any(name.startswith("video") for name in fields):
            return f"{name}, a model that reads images and no video; {ENDING}"
        return f"{name}, which no family can read yet; {ENDING}"
    if described in MODEL_FOR_CAUSAL_LM_MAPPING:
        return f"{name}, a model of text without an encoder for video; {ENDING}"
    return f"{name}, which no family can read; {ENDING}"
