"""A checkpoint's tokenizer and generation settings, loaded from files that are checked first.

A tokenizer's files come from an untrusted source and decide how text is processed: a replacement can make text grow
without bound, a path can name any file of the machine, and a class can read formats that are not needed here. Features
that tokenizers of the supported decoders use are allowed; all others are refused by name. The same holds for the
settings of generation_config.json.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig

from aviot.backbones.checkpoints.config_fields import (
    FLAG,
    MOST_POSITIONS,
    OBJECT,
    TOKEN,
    TOKENS,
    Rule,
    either,
    exactly,
    known_fields,
    number,
    or_null,
    whole,
)
from aviot.backbones.checkpoints.folder import CheckpointError, check_file, quoted, read_json, reason_of
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.prompt import SYSTEM, chat_prompt

CONFIG_FILE, TOKENIZER_FILE, GENERATION_FILE = "tokenizer_config.json", "tokenizer.json", "generation_config.json"
LARGEST_EMPTY = 2**20  # bytes of a tokenizer's file without its tokens
LARGEST_FILE = 64 * 2**20  # bytes, for any vocabulary; a published one of 260,000 tokens has 33 MB
LARGEST_TOKEN = 512  # bytes of it for each token: the token, its merge and the whitespace around them
MOST_REPLACEMENTS = 2  # each can multiply the length of a text
LONGEST_REPLACEMENT = 8  # letters
MOST_BEAMS = 16  # each holds a copy of the keys and values of all visual tokens; a caller may ask for more

_CLASSES = ("GPT2Tokenizer", "LlamaTokenizer", "PreTrainedTokenizer", "Qwen2Tokenizer", "TokenizersBackend")
_FILES = (TOKENIZER_FILE, "vocab.json", "merges.txt")
TEMPLATES = "additional_chat_templates"
_SMALL_FILES = ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
# Arguments of tokenizer classes that name files or hold whole tokenizers.
_OBJECTS = ("gguf_file", "init_inputs", "merges", "subfolder", "tokenizer_object", "vocab", "__slow_tokenizer")
_TOKEN_TEXT = either(Rule("be text", lambda value: isinstance(value, str) and value != ""), OBJECT)
_TOKENIZER_RULES = {
    "added_tokens_decoder": OBJECT,
    "model_max_length": or_null(number(1, 1e308)),  # no limit is written as 1e30
    **{f"{name}_token": or_null(_TOKEN_TEXT) for name in ("bos", "eos", "pad", "unk")},
}
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_LENGTH = or_null(whole(0, MOST_POSITIONS))
_GENERATION_RULES: dict[str, Rule] = {
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
# Values of other settings that have no effect; older files contain them.
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


def load_tokenizer(folder: Path, config: AviotConfig, options: dict[str, Any]) -> Any:
    """Load a checkpoint's tokenizer; without a caller's `options`, files that cannot be read raise CheckpointError."""
    check_tokenizer_files(folder, config.text_config.vocab_size)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, config=config, trust_remote_code=False, local_files_only=True, **options
        )
        if not options:
            _check_tokenizer(tokenizer, config.text_config.vocab_size)
    except ImportError:
        raise
    except BaseException as error:
        if options or not is_tokenizers_error(error):
            raise
        raise CheckpointError(
            f"{folder}: its tokenizer ({TOKENIZER_FILE}, {CONFIG_FILE}, …) cannot be read ({reason_of(error)})"
        ) from error
    return tokenizer


def is_tokenizers_error(error: BaseException) -> bool:
    """Return whether an error can come from tokenizers, which raises Exception, and a BaseException when it panics."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def check_tokenizer_files(folder: Path, vocabulary: int) -> None:
    """Refuse tokenizer files that are too large for the vocabulary, and settings that name other files."""
    found = [folder / name for name in _FILES if (folder / name).exists() or (folder / name).is_symlink()]
    for path in found:
        check_file(path, min(LARGEST_FILE, LARGEST_EMPTY + LARGEST_TOKEN * vocabulary))
    for name in _SMALL_FILES:
        if (folder / name).exists():
            check_file(folder / name, LARGEST_EMPTY)
    _check_templates(folder / TEMPLATES)
    if not found:
        raise CheckpointError(f"{folder} holds no tokenizer; expected {TOKENIZER_FILE}, or vocab.json and merges.txt")
    if (folder / CONFIG_FILE).exists():
        _check_settings(folder / CONFIG_FILE)
    if folder / TOKENIZER_FILE in found:
        _check_steps(folder / TOKENIZER_FILE)


def _check_templates(folder: Path) -> None:
    """Refuse additional chat templates, all of which transformers reads, whose total size exceeds that of one file."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a link; copy the folder it points to, or remove it")
    found = sorted(folder.glob("*.jinja"))
    for path in found:
        check_file(path, LARGEST_EMPTY)
    if sum(path.stat().st_size for path in found) > LARGEST_EMPTY:
        raise CheckpointError(f"{folder} holds more than the {LARGEST_EMPTY:,} bytes that chat templates can need")


def _check_settings(path: Path) -> None:
    """Refuse tokenizer classes of other families, and arguments that name other files."""
    settings = read_json(path)
    try:
        known_fields(settings, _TOKENIZER_RULES)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    name = settings.get("tokenizer_class")
    if name is not None and (not isinstance(name, str) or name.removesuffix("Fast") not in _CLASSES):
        raise CheckpointError(f"{path}: tokenizer_class must be one of {', '.join(_CLASSES)}, got {quoted(name)}")
    for key, value in settings.items():
        if value and (key in _OBJECTS or key.endswith(("_file", "_files"))):
            raise CheckpointError(f"{path}: {quoted(key)} names other files or objects; remove it from the file")


def _check_steps(path: Path) -> None:
    """Refuse processing steps that can make a text grow without bound."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path.parent}: its tokenizer ({path.name}) cannot be read (not JSON: {reason_of(error)})"
        ) from error
    for step in _STEPS if isinstance(stored, dict) else ():
        replacements = 0
        for part in _parts(stored.get(step)):
            if part.get("type") == "Precompiled":
                raise CheckpointError(f"{path}: {step} has a Precompiled table, which is not implemented")
            texts = [part.get("content"), part.get("prepend"), part.get("replacement")]
            longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
            replacements += part.get("type") == "Replace"
            if longest > LONGEST_REPLACEMENT or replacements > MOST_REPLACEMENTS:
                raise CheckpointError(
                    f"{path}: {step} may replace text at most {MOST_REPLACEMENTS} times, by at most "
                    f"{LONGEST_REPLACEMENT} letters each"
                )


def _parts(step: Any) -> Iterator[dict[str, Any]]:
    """Yield a step and all objects nested in it."""
    waiting = [step]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _check_tokenizer(tokenizer: Any, vocabulary: int) -> None:
    """Raise ValueError for a tokenizer that cannot encode a prompt, or has tokens outside the decoder's vocabulary."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocabulary:
        raise ValueError(f"it has the token {largest:,}, but the decoder embeds {vocabulary:,} tokens")
    prompt = chat_prompt("Is it 1 or 2?", 1.0, [0.0])
    for text in (SYSTEM, prompt.before, prompt.after):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        if not encoded["input_ids"]:
            raise ValueError("it encodes a prompt as no tokens")
        tokenizer.decode(encoded["input_ids"], skip_special_tokens=True)
    if "" in tokenizer.all_special_tokens:
        raise ValueError("one of its special tokens is empty, and would be found in every text")
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is None:
        raise ValueError("it has neither a pad_token nor an eos_token")


def read_generation_settings(folder: Path, config: AviotConfig) -> GenerationConfig:
    """Return a checkpoint's generation settings; without generation_config.json, those that follow from its config."""
    path = folder / GENERATION_FILE
    if not os.path.lexists(path):
        return GenerationConfig.from_model_config(config)
    values = read_json(path)
    try:
        known = known_fields(values, _GENERATION_RULES)
        _refuse_others(values)
        _check_tokens(known, config.text_config.vocab_size)
        return GenerationConfig(**known, **{_ORIGIN: values.get(_ORIGIN) is True})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {reason_of(error)}") from error


def _refuse_others(values: dict[str, Any]) -> None:
    """Refuse every other setting of transformers that is switched on; unknown keys have no effect."""
    known = set(GenerationConfig().to_dict()) - set(_GENERATION_RULES) - {"transformers_version", _ORIGIN}
    for name in sorted(known & set(values)):
        if values[name] not in (None, False, _IDLE.get(name)):
            raise ValueError(f"{name} is {quoted(values[name])}, which is not implemented; remove it from the file")


def _check_tokens(known: dict[str, Any], vocabulary: int) -> None:
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = known.get(name)
        for token in ids if isinstance(ids, list) else [ids]:
            if token is not None and token >= vocabulary:
                raise ValueError(f"{name} must lie in the vocabulary of {vocabulary:,} tokens, got {token:,}")
