"""A model to measure, loaded or with random weights, and random videos and prompts for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from aviot.bench.sizes import Size
from aviot.models.configuration import AviotConfig
from aviot.models.modeling import AviotForConditionalGeneration

PROMPT = 60  # tokens around the video, as a chat prompt has them
PLACEHOLDER = 20  # where among them the video stands
QUESTION = (30, 50)  # where the question stands


@dataclass(frozen=True)
class Workload:
    """A batch of random videos with a prompt each."""

    pixels: Tensor  # [B*T,3,H,W] uint8
    ids: Tensor  # [B,L]
    span: Tensor  # [B,2]
    batch: int
    frames: int


def random_model(size: Size, device: torch.device, dtype: torch.dtype, seed: int) -> AviotForConditionalGeneration:
    """A model of this shape with random weights, made on the device itself."""
    config = AviotConfig(
        vision_config=size.vision_config(),
        text_config=size.text_config(),
        compressor_config=size.compressor,
    )
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), _default_dtype(dtype), device:
        torch.manual_seed(seed)
        return AviotForConditionalGeneration(config).eval()


def load_model(folder: Path, device: torch.device, dtype: torch.dtype | None) -> AviotForConditionalGeneration:
    """A checkpoint on the device, in its own type unless another is asked for."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AviotForConditionalGeneration.from_pretrained(folder).eval()
    return model.to(device) if dtype is None else model.to(device, dtype)


def random_workload(
    model: AviotForConditionalGeneration, batch: int, frames: int, generator: torch.Generator
) -> Workload:
    """Pixels, prompts and questions drawn from a generator on the model's device."""
    device, config = model.device, model.config
    side = config.vision_config.image_size
    shape = (batch * frames, 3, side, side)
    pixels = torch.randint(0, 256, shape, generator=generator, device=device, dtype=torch.uint8)
    words = min(1000, config.text_config.vocab_size)
    ids = torch.randint(0, words, (batch, PROMPT), generator=generator, device=device)
    ids[:, PLACEHOLDER] = config.video_token_id
    return Workload(pixels, ids, torch.tensor([QUESTION] * batch, device=device), batch, frames)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
