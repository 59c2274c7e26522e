"""What a checkpoint may not bring: code to run, kernels to fetch, and weights that its safetensors do not show.

transformers follows all of these, some after a question on stdin, some silently. Here they are refused by name before
transformers sees the folder, and every loader is told `trust_remote_code=False` besides.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aviot.backbones.checkpoints.documents import read_json
from aviot.backbones.checkpoints.errors import CheckpointError, quoted, shown

# Keys that name Python code, wherever in a file they stand.
_CODE = frozenset({"auto_map", "custom_generate", "custom_pipelines"})
# Keys that name weights, or another form of them, beside the safetensors that are checked.
_WEIGHTS = frozenset({"compression_config", "quantization_config", "transformers_weights"})
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
# transformers' own words for attention; a checkpoint may name them, and the caller's choice decides.
_BUILT_IN = frozenset(
    {"eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4"}
)
# Files whose keys any of transformers' loaders reads.
_SCANNED = ("*config*.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json")
_ADAPTER = "adapter_config.json"  # what peft looks for; training's own adapters lie in a folder of their own


def refuse_foreign_code(folder: Path) -> None:
    """Refuse a checkpoint folder that names code, hub kernels, adapters or other weights, each by its name."""
    if os.path.lexists(folder / _ADAPTER):
        raise CheckpointError(
            f"{folder} holds {_ADAPTER}, an adapter that would change the weights unseen; merge it into the weights, "
            "or move it out of the folder and apply it with peft after loading"
        )
    if os.path.lexists(folder / "custom_generate"):
        raise CheckpointError(f"{folder} holds custom_generate, code to run, which is never run here; remove it")
    for path in sorted({path for place in (folder, folder / "vision_tower") for path in _scanned(place)}):
        refuse_named_code(read_json(path), path)


def refuse_named_code(values: Mapping[str, Any], where: object) -> None:
    """Refuse the keys of a parsed file, at any depth, that name code, kernels or other weights."""
    for place, key, value in _entries(values):
        if not value:
            continue
        name = f"{where}: {shown(place + key)}"
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
    """Take `trust_remote_code` out of a caller's options; there is no loader here that would run such code."""
    if options.pop("trust_remote_code", None):
        raise ValueError("trust_remote_code must be left out or False: code of a checkpoint is never run here")


def _scanned(folder: Path) -> Iterator[Path]:
    for pattern in _SCANNED:
        yield from folder.glob(pattern)


def _entries(values: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield every key of nested objects with the place it stands at; without recursion, whatever the depth."""
    waiting: list[tuple[str, Any]] = [("", values)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, Mapping):
            for key, member in value.items():
                yield place, key, member
                waiting.append((f"{place}{key}."[:200], member))
        elif isinstance(value, list):
            waiting += ((place, member) for member in value)


def _is_built_in(value: Any) -> bool:
    chosen = list(value.values()) if isinstance(value, Mapping) else [value]
    return all(
        isinstance(word, str) and word.removeprefix("paged|") in _BUILT_IN for word in chosen if word is not None
    )
