"""Decoders with M-RoPE for vLLM, which counts the positions of prompt embeddings unless a request brings its own.

Imported by vLLM alone, in its own processes.
"""

import logging
from functools import wraps
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from vllm.model_executor.models.interfaces import SupportsMRoPE
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from aviot.engine.vllm_positions import POSITIONS, from_text

logger = logging.getLogger(__name__)


class AviotQwen2ForCausalLM(Qwen2ForCausalLM, SupportsMRoPE):
    """The decoder of Qwen2-VL and Qwen2.5-VL: that of Qwen2 with positions on three axes."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        if vllm_config.use_v2_model_runner:
            raise ValueError(
                "positions of requests are taken by vLLM's first model runner only; start vLLM with "
                "VLLM_USE_V2_MODEL_RUNNER=0"
            )
        GPUModelRunner._init_mrope_positions = taking_positions(GPUModelRunner._init_mrope_positions)
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[Any]
    ) -> tuple[Int[Tensor, "3 L"], int]:
        """Return positions of text."""
        return torch.arange(len(input_tokens)).expand(3, -1), 0


def taking_positions(initialise: Any) -> Any:
    """Return a model runner's method that gives a request the positions which it brings, if it brings any."""
    if hasattr(initialise, "__wrapped__"):
        return initialise  # another model was built in this process before

    @wraps(initialise)
    def initialise_or_take(self: Any, state: Any) -> None:
        initialise(self, state)
        sent = (getattr(state.sampling_params, "extra_args", None) or {}).get(POSITIONS)
        if sent is None:
            return
        length = state.mrope_positions.shape[1]
        try:
            positions = from_text(sent, length)
        except (ValueError, TypeError) as error:  # raised here, it would end the engine for all requests
            logger.error("request %s is answered with positions of text: %s", state.req_id, error)
            return
        state.mrope_positions = positions
        state.mrope_position_delta = int(positions[0, -1]) + 1 - length

    return initialise_or_take
