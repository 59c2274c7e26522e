"""The small model's shape: the 7B's classes, each a few hundred channels wide."""

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, SiglipVisionConfig

from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor
from aviot.synthetic.config import GRID

PATCH = 4  # pixels
POSITION = 0.75  # deviation of the weights that the slowest waves of time, row and column start with
WARMUP = 200  # steps after which positions, relevance and temperature have their final weight


def small_config(tokenizer: PreTrainedTokenizerFast) -> AviotConfig:
    """SigLIP of 27 by 27 patches, pooled to 9 by 9; Qwen2 with tied embeddings."""
    vision = SiglipVisionConfig(
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=3,
        image_size=PATCH * GRID,
        patch_size=PATCH,
        vision_use_head=False,
    )
    text = Qwen2Config(
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    compressor = {"cost_dim": 64, "warmup_steps": WARMUP}
    return AviotConfig(vision_config=vision, text_config=text, compressor_config=compressor, pool_stride=3, ratio=4.0)


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> AviotForConditionalGeneration:
    """The untrained model; a seed gives one set of weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AviotForConditionalGeneration(small_config(tokenizer))
        _know_positions(model)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def small_processor(tokenizer: PreTrainedTokenizerFast) -> AviotProcessor:
    """The processor that reads videos as the small model saw them: two frames a second."""
    return AviotProcessor(tokenizer, image_size=PATCH * GRID, fps=2.0, max_frames=224)


@torch.no_grad()
def _know_positions(model: AviotForConditionalGeneration) -> None:
    """Start with positions that mean something, where a pretrained model would bring its own.

    A patch's code in the encoder is like its neighbours', or attention would have to find out which those are. Time,
    row and column reach the compressed features from the first step on (a fine-tuned model starts from zero): the
    slower a wave, the more of it, since fast ones tell places apart but not near from far.
    """
    dim = model.config.vision_config.hidden_size
    model.model.vision_tower.embeddings.position_embedding.weight.copy_(grid_code(dim))
    bands = model.config.compressor.position.bands
    share = POSITION * 2.0 ** -torch.arange(bands, dtype=torch.float32)
    proj = model.model.position.proj.weight  # [D, 3 * (sines, cosines)]
    proj.copy_(torch.randn(proj.shape) * share.repeat(6))


def grid_code(dim: int) -> Float[Tensor, "S dim"]:
    """Sines and cosines of a patch's row and column: neighbours start out alike, or attention would have to find them.

    Wavelengths go from two patches to four times the grid.
    """
    waves = 2.0 * (2 * GRID) ** torch.linspace(0, 1, dim // 4)
    angle = 2 * torch.pi * torch.arange(GRID)[:, None] / waves
    line = torch.cat((angle.sin(), angle.cos()), 1)  # [27, dim / 2]
    rows, columns = line[:, None].expand(-1, GRID, -1), line[None].expand(GRID, -1, -1)
    return 0.5 * torch.cat((rows, columns), -1).flatten(0, 1)
