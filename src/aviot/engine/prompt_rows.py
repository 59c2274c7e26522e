"""Each prompt as the decoder reads it, for engines that run the decoder elsewhere: embeddings, and positions of M-RoPE.

The model's own code merges text and visual tokens and is stopped where its decoder begins, so that every family sends
exactly what it would read in this process.
"""

import threading
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.engine.base import DecoderInput

DEEPER = "deepstack_visual_embeds"  # the decoder's argument for what is added to deeper layers


class UnsupportedDecoder(ValueError):
    """Raised if a decoder or a method cannot run outside this process."""


@dataclass(frozen=True)
class PromptRow:
    """One prompt as its decoder reads it; `positions` are time, row and column, or None where tokens are counted."""

    embeds: Float[Tensor, "L d"]
    positions: Int[Tensor, "3 L"] | None = None


class _Reached(Exception):
    """Raised to leave a model where its decoder begins."""


@torch.inference_mode()
def prompt_rows(model: Any, inputs: DecoderInput) -> list[PromptRow]:
    """Return each prompt without its padding, on the CPU; the model's layers do not run.

    Raises ValueError if a compression or an embedding is not finite, and UnsupportedDecoder if the decoder reads more
    than embeddings and positions.
    """
    for flags in inputs.finite:
        flags.raise_first()
    mask = inputs.arguments["attention_mask"].bool().cpu()
    embeds, positions = _read(model, inputs)
    rows = []
    for place, own in enumerate(mask):
        row = embeds[place].cpu()[own]
        if not bool(torch.isfinite(row).all()):
            raise ValueError(
                "the prompt's embeddings are not finite (NaN or infinity); look for NaN or infinity in the "
                "checkpoint's weights and in the video's features"
            )
        rows.append(PromptRow(row.contiguous(), _positions(positions, place, own)))
    return rows


def _read(model: Any, inputs: DecoderInput) -> tuple[Float[Tensor, "B L d"], Tensor | None]:
    """Return embeddings and position ids of all prompts."""
    if "inputs_embeds" in inputs.arguments:
        return inputs.arguments["inputs_embeds"], inputs.arguments.get("position_ids")
    found: dict[str, Any] = {}
    owner = threading.get_ident()

    def stop(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            found.update(kwargs)
            raise _Reached

    hook = model.get_decoder().register_forward_pre_hook(stop, with_kwargs=True)
    try:
        model.generate(**inputs.arguments, max_new_tokens=1, do_sample=False, num_beams=1)
    except _Reached:
        pass
    finally:
        hook.remove()
    if found.get(DEEPER) is not None:
        raise UnsupportedDecoder(
            "this decoder adds visual features to deeper layers (deepstack), which prompt embeddings do not carry; "
            "answer with the transformers engine"
        )
    return found["inputs_embeds"], found.get("position_ids")


def _positions(positions: Tensor | None, place: int, own: Bool[Tensor, "L"]) -> Int[Tensor, "3 L"] | None:
    """Return one prompt's positions on three axes; None for counted ones."""
    if positions is None:
        return None
    if positions.ndim == 3:
        return positions[-3:, place].cpu()[:, own].contiguous()
    counted = positions[min(place, len(positions) - 1)].cpu()[own]
    if not torch.equal(counted, torch.arange(len(counted))):
        raise UnsupportedDecoder("this decoder's positions are not counted; answer with the transformers engine")
    return None
