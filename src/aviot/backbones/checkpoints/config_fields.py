"""The fields of a checkpoint's config that are read, and the values that each may have.

An untrusted config reaches transformers only through `known_fields`: fields with a rule here are checked, all others
are left out, so that no key can switch on an unexpected feature of transformers. Upper bounds are well above every
published model of these families; `check_sizes` of a family then compares the numbers with the weights themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from aviot.backbones.checkpoints.folder import quoted
from aviot.utils.values import as_number, as_whole

VIDEO_PLACEHOLDER = -200  # marks the video in published prompts; not a token of any vocabulary

MOST_LAYERS = 512  # the deepest published decoders have some 130
MOST_HEADS = 1024
MOST_CHANNELS = 2**18  # the widest published feed-forward layers have some 50,000
MOST_TOKENS = 2**21  # in a vocabulary; the largest published ones have some 260,000
MOST_POSITIONS = 2**24  # 512 times the decoder of the paper
MOST_PIXELS = 4096  # along the side of an image; the paper's encoder takes 384
MOST_END_TOKENS = 64

_TEXT_TYPES = ("qwen2", "qwen3")
_VISION_TYPES = ("siglip_vision_model",)
_DTYPES = ("float32", "float16", "bfloat16", "float64")
_LAYER_TYPES = ("full_attention", "sliding_attention")
_ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")
_ROPE_NUMBERS = (
    *("rope_theta", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
    *("low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim"),
)


@dataclass(frozen=True)
class Rule:
    """The requirement on a field, in words and as a test."""

    requirement: str
    holds: Callable[[Any], bool]


def whole(least: int, most: int) -> Rule:
    """Return the rule for a whole number in a range."""

    def holds(value: Any) -> bool:
        number = as_whole(value)
        return number is not None and least <= number <= most

    return Rule(f"be a whole number from {least:,} to {most:,}", holds)


def exactly(only: int) -> Rule:
    """Return the rule for a number with only one supported value."""
    return Rule(f"be {only}", lambda value: as_whole(value) == only)


def number(low: float, high: float, *, above: bool = False) -> Rule:
    """Return the rule for a finite number in a range; `above` excludes the lower end."""

    def holds(value: Any) -> bool:
        found = as_number(value)
        return found is not None and (low < found if above else low <= found) and found <= high

    return Rule(
        f"be a number {'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}", holds
    )


def word(*choices: str) -> Rule:
    """Return the rule for one of several words."""
    return Rule(f"be one of {', '.join(map(repr, choices))}", lambda value: isinstance(value, str) and value in choices)


def or_null(rule: Rule) -> Rule:
    """Return a rule that also allows null."""
    return Rule(f"{rule.requirement}, or null", lambda value: value is None or rule.holds(value))


def list_of(rule: Rule, most: int) -> Rule:
    """Return the rule for a list whose entries all meet another rule."""

    def holds(value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) <= most and all(map(rule.holds, value))

    return Rule(f"be a list of at most {most}, where each must {rule.requirement}", holds)


def either(one: Rule, other: Rule) -> Rule:
    """Return the rule for a value that meets one rule or the other."""
    return Rule(f"{one.requirement}, or {other.requirement}", lambda value: one.holds(value) or other.holds(value))


FLAG = Rule("be true or false", lambda value: isinstance(value, bool))
TOKEN = or_null(whole(0, MOST_TOKENS - 1))
TOKENS = either(TOKEN, list_of(whole(0, MOST_TOKENS - 1), MOST_END_TOKENS))
_POSITIVE = number(0, 1e12, above=True)
_SMALL = number(0, 1, above=True)
OBJECT = Rule("be an object", lambda value: isinstance(value, Mapping))


def _is_rope(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    kind = value.get("rope_type", value.get("type", "default"))
    numbers = (value[name] for name in _ROPE_NUMBERS if value.get(name) is not None)
    return (
        kind in _ROPE_TYPES
        and set(value) <= {"rope_type", "type", *_ROPE_NUMBERS}
        and all(map(_POSITIVE.holds, numbers))
    )


_ROPE = Rule(
    f"be null or an object with rope_type ({', '.join(_ROPE_TYPES)}) and positive numbers ({', '.join(_ROPE_NUMBERS)})",
    lambda value: value is None or _is_rope(value),
)


@cache
def _activations() -> Rule:
    from transformers.activations import ACT2FN

    return Rule("be the name of an activation", lambda value: isinstance(value, str) and value in ACT2FN)


_TOKEN_IDS = {"bos_token_id": TOKEN, "eos_token_id": TOKENS, "pad_token_id": TOKEN}
_SHARED = {"dtype": or_null(word(*_DTYPES)), "torch_dtype": or_null(word(*_DTYPES))}
_WIDTHS = {
    "hidden_size": whole(1, MOST_CHANNELS),
    "intermediate_size": whole(1, MOST_CHANNELS),
    "num_hidden_layers": whole(1, MOST_LAYERS),
    "num_attention_heads": whole(1, MOST_HEADS),
    "attention_dropout": number(0, 1),
}


@cache
def text_rules() -> Mapping[str, Rule]:
    """Return the rules for a decoder's fields."""
    return {
        "model_type": word(*_TEXT_TYPES),
        **_WIDTHS,
        **_TOKEN_IDS,
        **_SHARED,
        "vocab_size": whole(1, MOST_TOKENS),
        "num_key_value_heads": or_null(whole(1, MOST_HEADS)),
        "head_dim": or_null(whole(1, MOST_CHANNELS)),
        "hidden_act": _activations(),
        "max_position_embeddings": whole(1, MOST_POSITIONS),
        "initializer_range": number(0, 1e3),
        "rms_norm_eps": _SMALL,
        "use_cache": FLAG,
        "attention_bias": FLAG,
        "tie_word_embeddings": FLAG,
        "rope_parameters": _ROPE,
        "rope_scaling": _ROPE,
        "rope_theta": _POSITIVE,
        "use_sliding_window": FLAG,
        "sliding_window": or_null(whole(1, MOST_POSITIONS)),
        "max_window_layers": whole(0, MOST_POSITIONS),
        "layer_types": or_null(list_of(word(*_LAYER_TYPES), MOST_LAYERS)),
    }


@cache
def vision_rules() -> Mapping[str, Rule]:
    """Return the rules for an encoder's fields."""
    return {
        "model_type": word(*_VISION_TYPES),
        **_WIDTHS,
        **_SHARED,
        "num_channels": exactly(3),
        "image_size": whole(1, MOST_PIXELS),
        "patch_size": whole(1, MOST_PIXELS),
        "hidden_act": _activations(),
        "layer_norm_eps": _SMALL,
        "vision_use_head": FLAG,
    }


@cache
def model_rules() -> Mapping[str, Rule]:
    """Return the rules for the fields beside the decoder's and the encoder's."""
    return {
        "architectures": or_null(list_of(Rule("be text", lambda value: isinstance(value, str)), 16)),
        "model_type": word("aviot"),
        "text_config": OBJECT,
        "vision_config": OBJECT,
        "compressor_config": or_null(OBJECT),
        "pool_stride": whole(1, MOST_PIXELS),
        "ratio": number(1, 1e6, above=True),
        "transport_loss_weight": number(-1e6, 1e6),
        "video_token_id": exactly(VIDEO_PLACEHOLDER),
        "tie_word_embeddings": FLAG,
        **_TOKEN_IDS,
        **_SHARED,
    }


def known_fields(values: Mapping[str, Any], rules: Mapping[str, Rule], prefix: str = "") -> dict[str, Any]:
    """Return the fields that have a rule; raise ValueError, naming it, for the first that breaks its rule."""
    for name, rule in rules.items():
        if name in values and not rule.holds(values[name]):
            raise ValueError(f"{prefix}{name} must {rule.requirement}, got {quoted(values[name])}")
    return {name: values[name] for name in rules if name in values}


def check_encoder(config: Any) -> None:
    """Refuse an encoder's config whose fields contradict each other."""
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            f"the encoder's num_attention_heads must divide its hidden_size {config.hidden_size}, "
            f"got {config.num_attention_heads}"
        )
    if config.patch_size > config.image_size:
        raise ValueError(f"patch_size must be at most image_size {config.image_size}, got {config.patch_size}")


def check_decoder(config: Any) -> None:
    """Refuse a decoder's config whose fields contradict each other."""
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    if groups is not None and heads % groups:
        raise ValueError(f"num_key_value_heads must divide num_attention_heads {heads}, got {groups}")
    if width < 2 or width % 2:
        raise ValueError(
            f"num_attention_heads must split hidden_size {config.hidden_size} into heads of an even number of "
            f"channels, got {heads}"
        )
    kinds = config.layer_types or ()
    if kinds and len(kinds) != config.num_hidden_layers:
        raise ValueError(f"layer_types must name {config.num_hidden_layers} layers, got {len(kinds)}")
    if "sliding_attention" in kinds and not config.sliding_window:
        raise ValueError("layer_types names sliding_attention, which needs use_sliding_window and sliding_window")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = getattr(config, name, None)
        for token in ids if isinstance(ids, list | tuple) else [ids]:
            if token is not None and not 0 <= token < config.vocab_size:
                raise ValueError(f"{name} must lie in the vocabulary of {config.vocab_size} tokens, got {token}")
