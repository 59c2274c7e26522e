"""A checkpoint folder of any layout: its config, and its weights checked against that config and renamed.

Even without memory for its weights, building a model costs time and memory for each layer. The numbers that decide how
many modules there are, and of what size, are therefore compared with the weights' headers first.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open
from torch import Tensor, nn

from aviot.backbones.checkpoints.folder import CheckpointError, quoted, read_json, reason_of, shown
from aviot.backbones.checkpoints.foreign_code import refuse_foreign_code
from aviot.backbones.checkpoints.shards import Shards, check_floating
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.layouts import LAYOUT_OF_TYPE, Layout, our_config, our_name, published_reason

# Parts that only AVIOT has; a LLaVA-Video checkpoint has none of them, and they start untrained.
FRESH = ("model.compressor.", "model.position.", "model.question_projection.")

FRESH_START = "%s is a LLaVA-Video checkpoint: positions, question projection and compressor start untrained."

Shapes = Mapping[str, tuple[int, ...]]
Expected = tuple[str, tuple[int, ...]]  # the config's fields that decide a tensor's shape, and that shape

_MOST_LISTED = 20  # tensors that one error message lists
_DECODER = "model.language_model."
_ENCODER = "model.vision_tower."
_LAYER = re.compile(r"(model\.language_model\.layers|model\.vision_tower\.encoder\.layers)\.(\d{1,6})\.")


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint folder, its layout and its config; no weights."""

    folder: Path
    layout: Layout
    config: AviotConfig


def read_checkpoint_folder(folder: Path) -> CheckpointFolder:
    """Return a folder's layout and config; refuse code, kernels and adapters that its files name."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint with config.json and safetensors")
    path = folder / "config.json"
    values = read_json(path)
    layout = LAYOUT_OF_TYPE.get(str(values.get("model_type")))
    if layout is None:
        known = ", ".join(LAYOUT_OF_TYPE)
        raise CheckpointError(f"{path}: model_type must be one of {known}, got {quoted(values.get('model_type'))}")
    refuse_foreign_code(folder)
    try:
        return CheckpointFolder(folder, layout, our_config(folder, layout, values))
    except CheckpointError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, StrictDataclassError) as error:
        reason = published_reason(reason_of(error)) if layout == "published" else reason_of(error)
        raise CheckpointError(f"{path} does not describe a model ({type(error).__name__}: {reason})") from error


def our_names(checkpoint: CheckpointFolder, shards: Shards) -> dict[str, str]:
    """Return the stored name of every tensor that is needed, by our name of it."""
    layers = checkpoint.config.vision_config.num_hidden_layers
    named = {our_name(name, checkpoint.layout, layers): name for name in shards.shapes}
    return {ours: name for ours, name in named.items() if ours is not None}


def check_sizes(checkpoint: CheckpointFolder, shards: Shards) -> None:
    """Refuse a config whose sizes differ from those of the weights, before anything of that size is built."""
    shapes = {ours: shards.shapes[name] for ours, name in our_names(checkpoint, shards).items()}
    try:
        _compare_sizes(checkpoint.config, shapes)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.folder / 'config.json'} does not describe its weights: {error}") from error


def _compare_sizes(config: AviotConfig, shapes: Shapes) -> None:
    """Raise ValueError for the first size of a config that differs from the tensors, which have our names."""
    text, vision = config.text_config, config.vision_config
    layers = _layer_counts(shapes)
    _check_count("the decoder's num_hidden_layers", text.num_hidden_layers, layers[_DECODER + "layers"])
    _check_count("the encoder's num_hidden_layers", vision.num_hidden_layers, layers[_ENCODER + "encoder.layers"])
    patches = (vision.image_size // vision.patch_size) ** 2
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    groups = text.num_key_value_heads or text.num_attention_heads
    expected: dict[str, Expected] = {
        _DECODER + "embed_tokens.weight": (
            "the decoder's vocab_size and hidden_size",
            (text.vocab_size, text.hidden_size),
        ),
        _DECODER + "layers.0.mlp.gate_proj.weight": (
            "the decoder's intermediate_size and hidden_size",
            (text.intermediate_size, text.hidden_size),
        ),
        _DECODER + "layers.0.self_attn.q_proj.weight": (
            "the decoder's num_attention_heads and head_dim",
            (text.num_attention_heads * head, text.hidden_size),
        ),
        _DECODER + "layers.0.self_attn.k_proj.weight": (
            "the decoder's num_key_value_heads, num_attention_heads and head_dim",
            (groups * head, text.hidden_size),
        ),
        _ENCODER + "embeddings.position_embedding.weight": (
            "the encoder's image_size, patch_size and hidden_size",
            (patches, vision.hidden_size),
        ),
        _ENCODER + "embeddings.patch_embedding.weight": (
            "the encoder's hidden_size and patch_size",
            (vision.hidden_size, vision.num_channels, vision.patch_size, vision.patch_size),
        ),
        _ENCODER + "encoder.layers.0.mlp.fc1.weight": (
            "the encoder's intermediate_size and hidden_size",
            (vision.intermediate_size, vision.hidden_size),
        ),
        **_compressor_shapes(config),
    }
    for name, (fields, shape) in expected.items():
        if name in shapes and shapes[name] != shape:
            raise ValueError(f"by {fields}, {name} has the shape {shape}, but the weights hold {shapes[name]}")


def _compressor_shapes(config: AviotConfig) -> dict[str, Expected]:
    """Return the shapes of the compressor's tensors; fields have our names, published ones in brackets."""
    sizes = config.compressor
    bands, region_bands = sizes.position.bands, sizes.position.region_bands
    return {
        "model.compressor.metric.embed.0.weight": ("cost_dim (aviot_cost_dim) and dim", (sizes.cost_dim, sizes.dim)),
        "model.compressor.gate.1.bias": ("gate.hidden (aviot_gate_hidden_size)", (sizes.gate.hidden,)),
        "model.position.proj.weight": ("position.bands (aviot_thw_num_bands) and dim", (sizes.dim, 6 * bands)),
        "model.compressor.region_position.weight": (
            "position.region_bands (aviot_region_position_bands) and dim",
            (sizes.dim, 4 * region_bands),
        ),
    }


def _layer_counts(shapes: Shapes) -> dict[str, int]:
    """Return the number of layers in decoder and encoder, counted by the tensors' names."""
    seen: dict[str, set[str]] = {_DECODER + "layers": set(), _ENCODER + "encoder.layers": set()}
    for name in shapes:
        if match := _LAYER.match(name):
            seen[match.group(1)].add(match.group(2))
    return {part: len(numbers) for part, numbers in seen.items()}


def _check_count(field: str, configured: int, stored: int) -> None:
    if configured != stored:
        raise ValueError(f"{field} is {configured:,}, but the weights hold {stored:,} layers")


def check_tensors(
    checkpoint: CheckpointFolder, shards: Shards, expected: Mapping[str, tuple[int, ...]]
) -> dict[str, str]:
    """Return the stored name of each of our tensors; the error names all missing, unexpected and misshapen ones."""
    stored = our_names(checkpoint, shards)
    optional = FRESH if checkpoint.layout == "llava-video" else ()
    if checkpoint.config.tie_word_embeddings:
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
        raise CheckpointError(f"{checkpoint.folder} does not fit its config. " + ". ".join(problems))
    check_floating(shards, stored.values())
    return stored


def _listed(names: Sequence[str]) -> str:
    listed = [shown(name) for name in sorted(names)[:_MOST_LISTED]]
    rest = len(names) - len(listed)
    return ", ".join(listed) + (f" and {rest:,} more" if rest else "")


def expected_tensors(build: Callable[[AviotConfig], nn.Module], config: AviotConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor in the model that `build` makes of a config; nothing is allocated."""
    try:
        with torch.device("meta"):
            return {name: tuple(tensor.shape) for name, tensor in build(config).state_dict().items()}
    except (ArithmeticError, KeyError, RuntimeError, TypeError, ValueError) as error:  # raised by parts of the model
        raise CheckpointError(
            f"config.json does not describe a model that can be built ({type(error).__name__}: {reason_of(error)})"
        ) from error


def load_renamed(shards: Shards, stored: Mapping[str, str]) -> dict[str, Tensor]:
    """Load the tensors under our names, file by file."""
    ours = {theirs: name for name, theirs in stored.items()}
    state: dict[str, Tensor] = {}
    for path in shards.paths:
        with safe_open(path, "pt") as shard:
            state |= {ours[name]: shard.get_tensor(name) for name in shards.names_in(path) if name in ours}
    return state
