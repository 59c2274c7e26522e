"""Architecture of the demo model: the classes of the 7B, each a few hundred channels wide."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, SiglipVisionConfig

from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor
from aviot_lab.world.world import GRID

PATCH = 4  # pixels
POOLED = 3  # patches along a side of a token
TOKEN_GRID = (GRID // POOLED, GRID // POOLED)  # tokens of a frame
POSITION = 0.75  # initial standard deviation of the weights of the slowest waves of time, row and column
SPACE = "\u0120"  # a space in the vocabulary of a byte-level tokenizer
OWN = 0.3  # share of a word's embedding that it does not have in common with the same word after a space
ADDED = 0.2  # share of the attended values that a layer adds


def small_config(tokenizer: PreTrainedTokenizerFast) -> AviotConfig:
    """Return the configuration: SigLIP of 27 by 27 patches, pooled to 9 by 9; Qwen2 with tied embeddings."""
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
        intermediate_size=640,
        num_hidden_layers=8,
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
    compressor = {"cost_dim": 64}
    return AviotConfig(
        vision_config=vision, text_config=text, compressor_config=compressor, pool_stride=POOLED, ratio=4.0
    )


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> AviotForConditionalGeneration:
    """Return the untrained model; its weights follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AviotForConditionalGeneration(small_config(tokenizer))
        _init_positions(model)
        init_matching(model, tokenizer)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def small_processor(tokenizer: PreTrainedTokenizerFast) -> AviotProcessor:
    """Return a processor that samples videos as in training: two frames per second."""
    return AviotProcessor(tokenizer, image_size=PATCH * GRID, fps=2.0, max_frames=224)


@torch.no_grad()
def _init_positions(model: AviotForConditionalGeneration) -> None:
    """Initialize position embeddings, where a pretrained model would bring its own.

    Embeddings of neighbouring patches are similar, so that attention does not have to learn which patches are near.
    Time, row and column enter the compressed features from the first step on (a fine-tuned model starts from zero).
    Slow waves get larger weights, since fast ones do not distinguish near from far.
    """
    dim = model.config.vision_config.hidden_size
    model.model.vision_tower.embeddings.position_embedding.weight.copy_(grid_code(dim))
    bands = model.config.compressor.position.bands
    share = POSITION * 2.0 ** -torch.arange(bands, dtype=torch.float32)
    proj = model.model.position.proj.weight  # [D, 3 * (sines, cosines)]
    proj.copy_(torch.randn(proj.shape) * share.repeat(6))


@torch.no_grad()
def init_matching(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Initialize a decoder that attends to similar tokens and copies them, as a pretrained one can.

    Query weights equal key weights, and output weights are transposed value weights; a word has nearly the same
    embedding with and without a space before it. From random weights, no pilot run learned to find an answer's word
    among the options (docs/log.md).
    """
    text = model.config.get_text_config()
    scale = text.hidden_size**-0.5
    words = model.get_input_embeddings().weight
    words.copy_(torch.randn(words.shape) * scale)
    pieces = tokenizer.get_vocab()
    for piece, number in pieces.items():
        if piece.startswith(SPACE) and piece[1:] in pieces:
            words[pieces[piece[1:]]].mul_(OWN).add_(words[number])
    shared = text.num_attention_heads // text.num_key_value_heads

    def for_all_heads(weight: Tensor) -> Tensor:
        return weight.unflatten(0, (text.num_key_value_heads, -1)).repeat_interleave(shared, 0).flatten(0, 1)

    for layer in model.model.language_model.layers:
        attention = layer.self_attn
        for part in (attention.k_proj, attention.v_proj):
            part.weight.copy_(torch.randn(part.weight.shape) * scale)
        attention.q_proj.weight.copy_(for_all_heads(attention.k_proj.weight))
        attention.o_proj.weight.copy_(ADDED * for_all_heads(attention.v_proj.weight).T)


def grid_code(dim: int) -> Float[Tensor, "S dim"]:
    """Return sines and cosines of each patch's row and column, with wavelengths from two patches to four grids."""
    waves = 2.0 * (2 * GRID) ** torch.linspace(0, 1, dim // 4)
    angle = 2 * torch.pi * torch.arange(GRID)[:, None] / waves
    line = torch.cat((angle.sin(), angle.cos()), 1)  # [27, dim / 2]
    rows, columns = line[:, None].expand(-1, GRID, -1), line[None].expand(GRID, -1, -1)
    return 0.5 * torch.cat((rows, columns), -1).flatten(0, 1)
