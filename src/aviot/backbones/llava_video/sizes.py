"""A config's numbers beside the weights' headers, before a model of that config is built.

Even without memory for its weights a model costs time and memory by its layers, so the numbers that decide how many
modules there are and how large, are compared with what the files hold first.
"""

import re
from collections.abc import Mapping

from aviot.backbones.llava_video.configuration import AviotConfig

Shapes = Mapping[str, tuple[int, ...]]
Claim = tuple[str, tuple[int, ...]]  # the fields that make a tensor's shape, and that shape

_DECODER = "model.language_model."
_ENCODER = "model.vision_tower."
_LAYER = re.compile(r"(model\.language_model\.layers|model\.vision_tower\.encoder\.layers)\.(\d{1,6})\.")


def check_sizes(config: AviotConfig, shapes: Shapes) -> None:
    """Raise ValueError for the first number of a config that the tensors, by our names, do not bear out."""
    text, vision = config.text_config, config.vision_config
    layers = _layer_counts(shapes)
    _check_count("the decoder's num_hidden_layers", text.num_hidden_layers, layers[_DECODER + "layers"])
    _check_count("the encoder's num_hidden_layers", vision.num_hidden_layers, layers[_ENCODER + "encoder.layers"])
    patches = (vision.image_size // vision.patch_size) ** 2
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    groups = text.num_key_value_heads or text.num_attention_heads
    expected: dict[str, Claim] = {
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
    for name, (what, shape) in expected.items():
        if name in shapes and shapes[name] != shape:
            raise ValueError(f"by {what}, {name} has the shape {shape}, but the weights hold {shapes[name]}")


def _compressor_shapes(config: AviotConfig) -> dict[str, Claim]:
    """Return what the compressor's sizes make of its tensors; published names of a size follow ours."""
    made = config.compressor
    bands, region_bands = made.position.bands, made.position.region_bands
    return {
        "model.compressor.metric.embed.0.weight": ("cost_dim (aviot_cost_dim) and dim", (made.cost_dim, made.dim)),
        "model.compressor.gate.1.bias": ("gate.hidden (aviot_gate_hidden_size)", (made.gate.hidden,)),
        "model.position.proj.weight": ("position.bands (aviot_thw_num_bands) and dim", (made.dim, 6 * bands)),
        "model.compressor.region_position.weight": (
            "position.region_bands (aviot_region_position_bands) and dim",
            (made.dim, 4 * region_bands),
        ),
    }


def _layer_counts(shapes: Shapes) -> dict[str, int]:
    """Return how many layers the tensors' names tell apart."""
    seen: dict[str, set[str]] = {_DECODER + "layers": set(), _ENCODER + "encoder.layers": set()}
    for name in shapes:
        if match := _LAYER.match(name):
            seen[match.group(1)].add(match.group(2))
    return {part: len(numbers) for part, numbers in seen.items()}


def _check_count(what: str, claimed: int, held: int) -> None:
    if claimed != held:
        raise ValueError(f"{what} is {claimed:,}, but the weights hold {held:,} layers")
