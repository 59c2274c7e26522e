"""Engines by name or address, as `aviot serve` and other commands choose them."""

import copy
import importlib.util
from typing import TYPE_CHECKING, Any

from aviot.engine.addresses import check_address

if TYPE_CHECKING:
    from aviot.engine.base import Engine
    from aviot.engine.outside import OutsideEngine

TRANSFORMERS, VLLM = "transformers", "vllm"
ADDRESS = ("http://", "https://")


def check_engine(choice: str) -> None:
    """Raise ValueError for a choice that is neither an engine's name nor an address; nothing heavy is imported."""
    if choice.startswith(ADDRESS):
        check_address(choice)
    elif choice not in (TRANSFORMERS, VLLM):
        raise ValueError(
            f"an engine is {TRANSFORMERS}, {VLLM} or a vLLM server's address (http://host:8000), got {choice!r:.100}"
        )
    elif choice == VLLM and importlib.util.find_spec("vllm") is None:
        raise ValueError("the engine vllm needs vLLM, which is not installed; see docs/engines.md, or name a server")


def engine_of(choice: str, model: Any, tokenizer: Any, *, key: str | None = None, **options: Any) -> "Engine":
    """Return the engine of a name or an address for a loaded model.

    The layers of a decoder that runs elsewhere are freed in this process. `key` is a server's API key; `options` go to
    the engine's class.
    """
    check_engine(choice)
    tokenizer = copy.deepcopy(tokenizer)  # not safe to use from two threads
    if choice == TRANSFORMERS:
        from aviot.engine.continuous import ContinuousEngine

        return ContinuousEngine(model, tokenizer, **options)
    if choice == VLLM:
        from aviot.engine.vllm import VllmEngine

        found: OutsideEngine = VllmEngine(model, tokenizer, **options)
    else:
        from aviot.engine.remote import RemoteEngine

        found = RemoteEngine(model, tokenizer, choice, key=key, **options)
    found.free_decoder()
    return found
