"""The small model's shape: the 7B's classes, each a few hundred channels wide."""

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, SiglipVisionConfig

from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor
from aviot_lab.world.config import GRID

PATCH = 4  # pixels
POSITION = 0.75  # deviation of the weights that the slowest waves of time, row and column start with
SPACE = "\u0120"  # as a byte-level tokenizer writes it
OWN = 0.3  # of a word's embedding that is not its own after a space
ADDED = 0.2  # of what is attended to


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
    return AviotConfig(vision_config=vision, text_config=text, compressor_config=compressor, pool_stride=3, ratio=4.0)


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> AviotForConditionalGeneration:
    """The untrained model; a seed gives one set of weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AviotForConditionalGeneration(small_config(tokenizer))
        _know_positions(model)
        _know_likeness(model, tokenizer)
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


@torch.no_grad()
def _know_likeness(model: AviotForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
    """Start with a decoder that attends to what is like a token and adds it as it is, as a pretrained one can.

    Queries are keys and what goes out is what came in, turned back; a word after a space begins like itself without.
    From random weights, no pilot learnt to find an answer's word among the options (docs/log.md).
    """
    text = model.config.text_config
    scale = text.hidden_size**-0.5
    words = model.get_input_embeddings().weight
    words.copy_(torch.randn(words.shape) * scale)
    pieces = tokenizer.get_vocab()
    for piece, number in pieces.items():
        if piece.startswith(SPACE) and piece[1:] in pieces:
            words[pieces[piece[1:]]].mul_(OWN).add_(words[number])
    shared = text.num_attention_heads // text.num_key_value_heads

    def of_all_heads(weight: Tensor) -> Tensor:
        return weight.unflatten(0, (text.num_key_value_heads, -1)).repeat_interleave(shared, 0).flatten(0, 1)

    for layer in model.model.language_model.layers:
        attention = layer.self_attn
        for part in (attention.k_proj, attention.v_proj):
            part.weight.copy_(torch.randn(part.weight.shape) * scale)
        attention.q_proj.weight.copy_(of_all_heads(attention.k_proj.weight))
        attention.o_proj.weight.copy_(ADDED * of_all_heads(attention.v_proj.weight).T)


def grid_code(dim: int) -> Float[Tensor, "S dim"]:
    """Sines and cosines of a patch's row and column: neighbours start out alike, or attention would have to find them.

    Wavelengths go from two patches to four times the grid.
    """
    waves = 2.0 * (2 * GRID) ** torch.linspace(0, 1, dim // 4)
    angle = 2 * torch.pi * torch.arange(GRID)[:, None] / waves
    line = torch.cat((angle.sin(), angle.cos()), 1)  # [27, dim / 2]
    rows, columns = line[:, None].expand(-1, GRID, -1), line[None].expand(GRID, -1, -1)
    return 0.5 * torch.cat((rows, columns), -1).flatten(0, 1)
