"""Refusal of checkpoints that name code to run, kernels to fetch, or weights outside their safetensors files.

transformers follows all of these, some after a question on stdin, some silently. Here they are refused by name before
transformers reads the folder, and every loader is called with `trust_remote_code=False`.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aviot.backbones.checkpoints.folder import CheckpointError, quoted, read_json, shown

# Keys that name Python code, at any depth of a file.
_CODE = frozenset({"auto_map", "custom_generate", "custom_pipelines"})
# Keys that name other weights than the safetensors that are checked, or another form of them.
QUANTIZATION = "quantization_config"
_WEIGHTS = frozenset({"compression_config", QUANTIZATION, "transformers_weights"})
# Keys that choose an implementation, which can be a repository of compiled kernels.
_IMPLEMENTATION = frozenset(
    {
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_internal",
        "experts_implementation",
        "_experts_implementation",
        "_experts_implementation_internal",
    }
)
_KERNELS = frozenset({"fusion_config", "kernel_config", "use_kernels"})
# transformers' own attention implementations; a checkpoint may name one, but the caller's choice decides.
_BUILT_IN = frozenset(
    {"eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4"}
)
# Files that loaders of transformers read.
_SCANNED = ("*config*.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json")
_ADAPTER = "adapter_config.json"  # read by peft; training stores its adapters in a separate folder


def refuse_foreign_code(folder: Path, allowed: frozenset[str] = frozenset()) -> None:
    """Refuse a checkpoint folder that names code, hub kernels, adapters or other weights; `allowed` keys are not."""
    if os.path.lexists(folder / _ADAPTER):
        raise CheckpointError(
            f"{folder} holds {_ADAPTER}, an adapter that would change the weights unseen; merge it into the weights, "
            "or move it out of the folder and apply it with peft after loading"
        )
    if os.path.lexists(folder / "custom_generate"):
        raise CheckpointError(f"{folder} holds custom_generate, code to run, which is never run here; remove it")
    for path in sorted({path for directory in (folder, folder / "vision_tower") for path in _scanned(directory)}):
        refuse_named_code(read_json(path), path, allowed)


def refuse_named_code(values: Mapping[str, Any], where: object, allowed: frozenset[str] = frozenset()) -> None:
    """Refuse keys of a parsed file, at any depth, that name code, kernels or other weights."""
    for prefix, key, value in _entries(values):
        if not value or key in allowed:
            continue
        name = f"{where}: {shown(prefix + key)}"
        if key in _CODE:
            raise CheckpointError(f"{name} names code to run, which is never run here; remove it from the file")
        if key == "trust_remote_code":
            raise CheckpointError(f"{name} asks to run code, which is never run here; remove it from the file")
        if key in _WEIGHTS:
            raise CheckpointError(f"{name} names weights in another form, which is not implemented; remove it")
        if key in _KERNELS or (key in _IMPLEMENTATION and not _is_built_in(value)):
            raise CheckpointError(
                f"{name} is {quoted(value)}, which can fetch and run compiled code; remove it, and choose an "
                "implementation in your own call of from_pretrained"
            )


def refuse_trust(options: dict[str, Any]) -> None:
    """Remove `trust_remote_code` from a caller's options; refuse True, since code of a checkpoint is never run."""
    if options.pop("trust_remote_code", None):
        raise ValueError("trust_remote_code must be left out or False: code of a checkpoint is never run here")


def _scanned(folder: Path) -> Iterator[Path]:
    for pattern in _SCANNED:
        yield from folder.glob(pattern)


def _entries(values: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, name and value of every key in nested objects; without recursion, for any depth."""
    waiting: list[tuple[str, Any]] = [("", values)]
    while waiting:
        prefix, value = waiting.pop()
        if isinstance(value, Mapping):
            for key, member in value.items():
                yield prefix, key, member
                waiting.append((f"{prefix}{key}."[:200], member))
        elif isinstance(value, list):
            waiting += ((prefix, member) for member in value)


def _is_built_in(value: Any) -> bool:
    chosen = list(value.values()) if isinstance(value, Mapping) else [value]
    return all(
        isinstance(word, str) and word.removeprefix("paged|") in _BUILT_IN for word in chosen if word is not None
    )
