"""What a checkpoint must hold to be resumed from, and what beside it would be loaded."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import PurePosixPath
from typing import Any

from transformers.trainer import OPTIMIZER_NAME, OPTIMIZER_NAME_BIN, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from aviot.training import adapters, identity

_LOADED = frozenset(
    (".bin", ".distcp", ".gguf", ".jinja", ".json", ".model", ".pkl", ".pt", ".pth", ".py", ".safetensors", ".tiktoken")
)
_LOADED_NAMES = frozenset(("latest", "latest_universal", "merges.txt", "vocab.txt", ".metadata"))
_LOADED_FOLDERS = re.compile(r"(adapter|additional_chat_templates|global_step|optimizer|pytorch_model_fsdp)")


def missing_parts(names: Set[str], settings: Mapping[str, Any], processes: int | None) -> list[str]:
    """Return what a checkpoint of these files lacks; `settings` is its `training.json`.

    `processes` wrote it (None: not known). Whatever is absent, the Trainer would leave out without a word.
    """
    return [" or ".join(choice) for choice in _needed(settings, processes) if not any(map(_finder(names), choice))]


def _finder(names: Set[str]) -> Any:
    return lambda pattern: pattern in names or any(re.fullmatch(pattern, name) for name in names)


def _needed(settings: Mapping[str, Any], processes: int | None) -> Iterator[tuple[str, ...]]:
    """Yield alternatives, each a name or a pattern of names."""
    yield from ((name,) for name in (CONFIG_NAME, TRAINER_STATE_NAME, identity.FILE))
    yield SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME
    engine = str(settings.get("engine"))
    if engine.startswith("zero"):  # whose schedule may be inside its own files
        yield ("latest",)
        for rank in range(processes or 1):
            yield (rf"global_step\d+/.*zero_pp_rank_{rank}_mp_rank_\d+_optim_states\.pt",)
    else:
        yield (SCHEDULER_NAME,)
        yield (OPTIMIZER_NAME_BIN, "optimizer_0/.metadata") if engine == "fsdp" else (OPTIMIZER_NAME,)
    if processes is None:
        yield ("rng_state.pth", r"rng_state_\d+\.pth")
    elif processes == 1:
        yield ("rng_state.pth",)
    else:
        yield from ((f"rng_state_{rank}.pth",) for rank in range(processes))
    if settings.get("lora.rank") is not None:
        yield (f"{adapters.FOLDER}/{adapters.WEIGHTS}",)


def would_be_loaded(name: str) -> bool:
    """Return whether a loader of transformers, accelerate, DeepSpeed, peft or torch may take up a file of this name."""
    path = PurePosixPath(name)
    if path.name in _LOADED_NAMES:
        return True
    return not any(part.startswith(".") for part in path.parts) and path.suffix in _LOADED


def misleading_folders(names: Iterable[str]) -> list[str]:
    """Return the folders, of those in a checkpoint, that a loader takes for a part of it by their name."""
    return [name for name in names if _LOADED_FOLDERS.match(PurePosixPath(name).name)]
