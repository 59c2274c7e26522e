"""A checkpoint's tokenizer, loaded from files that are checked first.

Its files are a stranger's program for text: a replacement can make text grow without bound, a path can name any file of
the machine, and a class can read formats that nothing here needs. What a tokenizer of the supported decoders uses is
let through, all else is refused by name.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from aviot.backbones.checkpoints.config_fields import OBJECT, Rule, either, known_fields, number, or_null
from aviot.backbones.checkpoints.documents import check_file, read_json
from aviot.backbones.checkpoints.errors import CheckpointError, quoted, reason_of
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.prompt import SYSTEM, chat_prompt

CONFIG_FILE, TOKENIZER_FILE = "tokenizer_config.json", "tokenizer.json"
LARGEST_EMPTY = 2**20  # bytes of a tokenizer's file without its tokens
LARGEST_FILE = 64 * 2**20  # bytes, whatever the vocabulary; a published one of 260,000 tokens has 33 MB
LARGEST_TOKEN = 512  # bytes of it for each token: the token, its merge and the whitespace around them
MOST_REPLACEMENTS = 2  # each can multiply the length of a text
LONGEST_REPLACEMENT = 8  # letters

_CLASSES = ("GPT2Tokenizer", "LlamaTokenizer", "PreTrainedTokenizer", "Qwen2Tokenizer", "TokenizersBackend")
_FILES = (TOKENIZER_FILE, "vocab.json", "merges.txt")
TEMPLATES = "additional_chat_templates"
_SMALL_FILES = ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
# Arguments of tokenizer classes that open files or stand for whole tokenizers.
_OBJECTS = ("gguf_file", "init_inputs", "merges", "subfolder", "tokenizer_object", "vocab", "__slow_tokenizer")
_TOKEN = either(Rule("be text", lambda value: isinstance(value, str) and value != ""), OBJECT)
_RULES = {
    "added_tokens_decoder": OBJECT,
    "model_max_length": or_null(number(1, 1e308)),  # "none" is written as 1e30
    **{f"{name}_token": or_null(_TOKEN) for name in ("bos", "eos", "pad", "unk")},
}
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def load_tokenizer(folder: Path, config: AviotConfig, options: dict[str, Any]) -> Any:
    """Load a checkpoint's tokenizer; where it is read as it is, files that cannot be are the checkpoint's fault."""
    check_tokenizer_files(folder, config.text_config.vocab_size)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, config=config, trust_remote_code=False, local_files_only=True, **options
        )
        if not options:
            _try_out(tokenizer, config.text_config.vocab_size)
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
    """Return whether tokenizers failed: it raises plain Exception, and BaseException where its own code gives up."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def check_tokenizer_files(folder: Path, vocabulary: int) -> None:
    """Refuse files that are larger than the vocabulary explains, and settings that lead out of them."""
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
    """Refuse further chat templates, which transformers reads whole, that are larger together than one may be."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a link; copy the folder it means, or remove it")
    found = sorted(folder.glob("*.jinja"))
    for path in found:
        check_file(path, LARGEST_EMPTY)
    if sum(path.stat().st_size for path in found) > LARGEST_EMPTY:
        raise CheckpointError(f"{folder} holds more than the {LARGEST_EMPTY:,} bytes that chat templates can need")


def _check_settings(path: Path) -> None:
    """Refuse a tokenizer class that is not one of these families', and arguments that name other files."""
    settings = read_json(path)
    try:
        known_fields(settings, _RULES)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    name = settings.get("tokenizer_class")
    if name is not None and (not isinstance(name, str) or name.removesuffix("Fast") not in _CLASSES):
        raise CheckpointError(f"{path}: tokenizer_class must be one of {', '.join(_CLASSES)}, got {quoted(name)}")
    for key, value in settings.items():
        if value and (key in _OBJECTS or key.endswith(("_file", "_files"))):
            raise CheckpointError(f"{path}: {quoted(key)} names other files or objects; remove it from the file")


def _check_steps(path: Path) -> None:
    """Refuse steps that can make a text grow without bound."""
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
    """Yield a step and everything nested in it."""
    waiting = [step]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _try_out(tokenizer: Any, vocabulary: int) -> None:
    """Raise ValueError for a tokenizer that cannot encode a prompt, or has tokens that the decoder does not embed."""
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
        raise ValueError("one of its special tokens is empty, and would stand in every text")
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is None:
        raise ValueError("it has neither a pad_token nor an eos_token")
