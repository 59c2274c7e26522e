"""Loading of transformers' own video models: everything that can be refused is refused before weights are read."""

import importlib.util
import logging as python_logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForImageTextToText, BitsAndBytesConfig
from transformers.utils import logging

from aviot.backbones.checkpoints.config_fields import MOST_CHANNELS, MOST_HEADS, MOST_LAYERS, MOST_TOKENS
from aviot.backbones.checkpoints.folder import CheckpointError, read_json, reason_of, shown
from aviot.backbones.checkpoints.foreign_code import QUANTIZATION, refuse_foreign_code
from aviot.backbones.checkpoints.shards import read_shards
from aviot.backbones.checkpoints.versions import newer_version
from aviot.backbones.loading import LoadOptions

logger = python_logging.getLogger(__name__)

BITSANDBYTES = "bitsandbytes"
SLACK = 1.5
"""Most weights that a config may describe, as a multiple of those that the checkpoint stores."""

FREE_WEIGHTS = 2**20
"""Weights that it may describe beyond that multiple, so that a few missing ones of a tiny model are still named."""

PACKED = 2
"""Weights that bitsandbytes packs into one stored number."""

# Sizes that decide how much is built, and upper bounds well above every published model.
_BOUNDS = {
    **dict.fromkeys(("num_hidden_layers", "depth", "num_layers"), MOST_LAYERS),
    **dict.fromkeys(("num_attention_heads", "num_heads", "num_key_value_heads", "num_experts"), MOST_HEADS),
    **dict.fromkeys(("hidden_size", "intermediate_size", "embed_dim", "out_hidden_size", "image_size"), MOST_CHANNELS),
    "vocab_size": MOST_TOKENS,
}


def read_config(folder: Path) -> Any:
    """Return a checkpoint's config; refuse code, kernels and adapters that its files name, and absurd sizes."""
    values = read_json(folder / "config.json")
    refuse_foreign_code(folder, allowed=frozenset({QUANTIZATION}))
    for name, size in _sizes(values):
        if size > _BOUNDS[name]:
            raise CheckpointError(
                f"{folder / 'config.json'}: {name} must be at most {_BOUNDS[name]:,}, got {size:,}; it is damaged"
            )
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of every kind that a damaged or newer file can cause in a config's class
        raise CheckpointError(
            f"{folder / 'config.json'} does not describe a model ({_reason(error)}){upgrade_advice(folder)}"
        ) from error


def load_model(folder: Path, config: Any, device: torch.device, options: LoadOptions) -> Any:
    """Load a model onto its device, or over the devices of a device map; no code of the checkpoint is run."""
    given: dict[str, Any] = {"dtype": options.torch_dtype or "auto", "config": config}
    quantised = _quantization(folder, config, options)
    shards = read_shards(folder)  # refuses weights that are missing, damaged or in pickles, by their headers
    _check_size(folder, config, sum(map(prod, shards.shapes.values())))
    if options.quantization is not None:
        given["quantization_config"] = quantised
    if options.device_map is not None:
        _require("accelerate", "a device map")
        given["device_map"] = options.device_map
    elif quantised is not None:
        given["device_map"] = {"": str(device)}
    try:
        with _without_reports():
            model, found = AutoModelForImageTextToText.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # and refused below, with names
                **given,
            )
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, AttributeError, TypeError) as error:
        raise CheckpointError(
            f"{folder}: the model cannot be loaded ({_reason(error)}){upgrade_advice(folder)}"
        ) from error
    _refuse_other_weights(folder, found)
    return model.eval() if "device_map" in given else model.eval().to(device)


def _refuse_other_weights(folder: Path, found: Mapping[str, Any]) -> None:
    """Refuse weights of other shapes than the config's, and missing ones; warn of those that are left out."""
    if mismatched := sorted(found["mismatched_keys"]):
        name, stored, expected = mismatched[0]
        raise CheckpointError(
            f"{folder}: {len(mismatched)} weights have other shapes than config.json says, such as {shown(name)}: "
            f"expected {tuple(expected)}, got {tuple(stored)}; copy config.json and the weights from one checkpoint"
            f"{upgrade_advice(folder)}"
        )
    if missing := sorted(found["missing_keys"]):
        raise CheckpointError(
            f"{folder}: {len(missing)} weights are missing, such as {shown(missing[0])}; copy all safetensors of "
            f"the checkpoint{upgrade_advice(folder)}"
        )
    if unexpected := sorted(found["unexpected_keys"]):
        logger.warning(
            "%s: %d weights are not part of the model and were left out, such as %s",
            folder,
            len(unexpected),
            shown(unexpected[0]),
        )


def _check_size(folder: Path, config: Any, stored: int) -> None:
    """Refuse a config of a much larger model than the weights, before memory is allocated for it."""
    try:
        with torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(deepcopy(config), trust_remote_code=False)
    except Exception as error:  # of every kind that a damaged config can cause in a model's class
        raise CheckpointError(
            f"{folder / 'config.json'} does not describe a model ({_reason(error)}){upgrade_advice(folder)}"
        ) from error
    described = sum(weight.numel() for weight in model.parameters())
    packed = PACKED if getattr(config, QUANTIZATION, None) is not None else 1
    most = stored * packed * SLACK + FREE_WEIGHTS
    if described > most:
        raise CheckpointError(
            f"{folder / 'config.json'} describes a model of {described:,} weights, and the checkpoint has {stored:,}; "
            "copy config.json and the weights from one checkpoint"
        )


@contextmanager
def _without_reports() -> Iterator[None]:
    """Silence transformers' reports about weights, which print names from the checkpoint as they are."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def execution_device(model: Any) -> torch.device:
    """Return the device where a model's inputs belong: that of its token embeddings, even if they are offloaded."""
    embedding = model.get_input_embeddings()
    device = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    if device is not None:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return embedding.weight.device


def _quantization(folder: Path, config: Any, options: LoadOptions) -> Any:
    """Return the quantisation of the loaded weights, by the options or the checkpoint; None if there is none."""
    stored = getattr(config, QUANTIZATION, None)
    if stored is not None:
        kind = stored.get("quant_method") if isinstance(stored, Mapping) else getattr(stored, "quant_method", None)
        method = str(getattr(kind, "value", kind))
        if method != BITSANDBYTES:
            raise CheckpointError(
                f"{folder}: its weights are quantised by {shown(method)}, and only {BITSANDBYTES} is supported; use "
                "the checkpoint that was not quantised"
            )
        if options.quantization is not None:
            raise ValueError(f"{folder}: its weights are quantised already; leave the quantization out")
        _require(BITSANDBYTES, f"{folder}, whose weights are quantised with it,")
        return stored
    if options.quantization is None:
        return None
    _require(BITSANDBYTES, f"{options.quantization} quantisation")
    if options.quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=options.torch_dtype or torch.bfloat16
    )


def _require(module: str, what: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"{what} needs {module}, which is not installed here; pip install {module}")


def _sizes(values: Any) -> Iterator[tuple[str, int]]:
    """Yield every size of a config that has an upper bound; without recursion, for any depth."""
    waiting = [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
            yield from ((name, size) for name, size in value.items() if name in _BOUNDS and isinstance(size, int))
        elif isinstance(value, list):
            waiting += value


def _reason(error: Exception) -> str:
    """Return another library's message, or the kind of an error without one."""
    said = reason_of(error)
    return (
        said if isinstance(error, ValueError | OSError | RuntimeError) and said else f"{type(error).__name__}: {said}"
    )


def upgrade_advice(folder: Path) -> str:
    """Return the advice to upgrade transformers, for a checkpoint that a newer version wrote; else nothing."""
    version = newer_version(read_json(folder / "config.json"))
    if version is None:
        return ""
    return (
        f"; it was written by transformers {shown(version)}, newer than the {transformers.__version__} installed here: "
        "upgrade transformers"
    )
