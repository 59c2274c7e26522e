"""A checkpoint's generation_config.json: the settings that are understood here, checked; no code, no modes beside."""

import os
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from aviot.backbones.checkpoints.config_fields import (
    FLAG,
    MOST_POSITIONS,
    TOKEN,
    TOKENS,
    Rule,
    exactly,
    known_fields,
    number,
    or_null,
    whole,
)
from aviot.backbones.checkpoints.documents import read_json
from aviot.backbones.checkpoints.errors import CheckpointError, quoted, reason_of
from aviot.backbones.llava_video.configuration import AviotConfig

GENERATION_FILE = "generation_config.json"
MOST_BEAMS = 16  # each beam holds a copy of the keys and values of all visual tokens; a caller may ask for more

_LENGTH = or_null(whole(0, MOST_POSITIONS))
_RULES: dict[str, Rule] = {
    "bos_token_id": TOKEN,
    "eos_token_id": TOKENS,
    "pad_token_id": TOKEN,
    "max_length": or_null(whole(1, MOST_POSITIONS)),
    "max_new_tokens": or_null(whole(1, MOST_POSITIONS)),
    "min_length": _LENGTH,
    "min_new_tokens": _LENGTH,
    "no_repeat_ngram_size": _LENGTH,
    "do_sample": or_null(FLAG),
    "use_cache": or_null(FLAG),
    "early_stopping": or_null(FLAG),
    "renormalize_logits": or_null(FLAG),
    "num_beams": or_null(whole(1, MOST_BEAMS)),
    "num_return_sequences": or_null(exactly(1)),
    "temperature": or_null(number(0, 1e3)),
    "top_k": or_null(whole(0, MOST_POSITIONS)),
    "top_p": or_null(number(0, 1, above=True)),
    "min_p": or_null(number(0, 1)),
    "typical_p": or_null(number(0, 1, above=True)),
    "repetition_penalty": or_null(number(0, 1e3, above=True)),
    "length_penalty": or_null(number(-1e3, 1e3)),
}
# Values of other settings that change nothing; older files write them out.
_IDLE: dict[str, Any] = {
    "assistant_confidence_threshold": 0.4,
    "assistant_lookbehind": 10,
    "encoder_repetition_penalty": 1.0,
    "num_assistant_tokens": 20,
    "num_assistant_tokens_schedule": "constant",
    "num_beam_groups": 1,
    "target_lookbehind": 10,
}
_ORIGIN = "_from_model_config"


def read_generation_settings(folder: Path, config: AviotConfig) -> GenerationConfig:
    """Return how a checkpoint generates: its own settings, or without such a file those of its config's tokens."""
    path = folder / GENERATION_FILE
    if not os.path.lexists(path):
        return GenerationConfig.from_model_config(config)
    values = read_json(path)
    try:
        known = known_fields(values, _RULES)
        _refuse_others(values)
        _check_tokens(known, config.text_config.vocab_size)
        return GenerationConfig(**known, **{_ORIGIN: values.get(_ORIGIN) is True})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {reason_of(error)}") from error


def _refuse_others(values: dict[str, Any]) -> None:
    """Refuse every other setting of transformers' that is switched on; keys it does not know have no effect."""
    known = set(GenerationConfig().to_dict()) - set(_RULES) - {"transformers_version", _ORIGIN}
    for name in sorted(known & set(values)):
        if values[name] not in (None, False, _IDLE.get(name)):
            raise ValueError(f"{name} is {quoted(values[name])}, which is not implemented; remove it from the file")


def _check_tokens(known: dict[str, Any], vocabulary: int) -> None:
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = known.get(name)
        for token in ids if isinstance(ids, list) else [ids]:
            if token is not None and token >= vocabulary:
                raise ValueError(f"{name} must lie in the vocabulary of {vocabulary:,} tokens, got {token:,}")
