"""Positions on three axes as an argument of a vLLM request, which takes text and numbers."""

import base64
import hashlib

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

POSITIONS = "aviot_positions"
"""The name of the argument, in `extra_args` in a process and in `vllm_xargs` over HTTP."""


def as_text(positions: Int[Tensor, "3 L"]) -> str:
    """Return positions as base64 of 32-bit numbers, axis by axis."""
    return base64.b64encode(positions.numpy().astype("<i4").tobytes()).decode()


def cache_salt(text: str) -> str:
    """Return a key that keeps vLLM from using cached prefixes of prompts with the same tokens at other positions."""
    return hashlib.sha256(text.encode()).hexdigest()


def from_text(text: str, length: int) -> Int[Tensor, "3 L"]:
    """Return the positions of a prompt of that length; raise ValueError if they are of another one."""
    data = base64.b64decode(text, validate=True)
    if len(data) != 12 * length:
        raise ValueError(f"{POSITIONS} must have three positions for each of {length} tokens, got {len(data)} bytes")
    return torch.from_numpy(np.frombuffer(data, "<i4").reshape(3, length).astype(np.int64))
