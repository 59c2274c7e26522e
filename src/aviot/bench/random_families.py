"""Models of Hugging Face families in the sizes of their published checkpoints, with random weights."""

from typing import Any

import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from aviot.backbones import registry
from aviot.backbones.base import Backbone
from aviot.backbones.huggingface.processing import Processing
from aviot.bench.sizes import POSITIONS

CHAT_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
QWEN2_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": POSITIONS,
}


def random_family(name: str, device: torch.device) -> Backbone:
    """Return a model of one of `FAMILY_SIZES` on the device, in torch's default type."""
    make, settings = _MODELS[name]
    config, tokenizer = make()
    with device:
        model = getattr(hf, config.architectures[0])(config).eval()
    (family,) = (found for found in registry.families() if found.handles(config.to_dict()))
    return family(model, Processing(tokenizer, None, {}, settings))  # type: ignore[call-arg]


def _tokenizer(special: tuple[str, ...]) -> hf.PreTrainedTokenizerFast:
    """Return a tokenizer of bytes with a family's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def _qwen_ids(tokenizer: hf.PreTrainedTokenizerFast) -> dict[str, int]:
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in zip(names, VISION_TOKENS, strict=True)} | {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _qwen2_5_vl() -> tuple[Any, hf.PreTrainedTokenizerFast]:
    tokenizer = _tokenizer((*CHAT_TOKENS, *VISION_TOKENS))
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    vision: dict[str, Any] = {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 3584,
    }
    vision |= {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2}
    config = hf.Qwen2_5_VLConfig(
        text_config={**QWEN2_7B, "rope_parameters": rope},
        vision_config=vision,
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        **_qwen_ids(tokenizer),
    )
    return config, tokenizer


def _qwen3_vl() -> tuple[Any, hf.PreTrainedTokenizerFast]:
    tokenizer = _tokenizer((*CHAT_TOKENS, *VISION_TOKENS))
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}
    text |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": POSITIONS}
    vision: dict[str, Any] = {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 4096,
    }
    vision |= {"patch_size": 16, "deepstack_visual_indexes": [8, 16, 24], "num_position_embeddings": 2304}
    config = hf.Qwen3VLConfig(
        text_config={**text, "rope_parameters": rope},
        vision_config=vision,
        architectures=["Qwen3VLForConditionalGeneration"],
        **_qwen_ids(tokenizer),
    )
    return config, tokenizer


def _llava_onevision() -> tuple[Any, hf.PreTrainedTokenizerFast]:
    tokenizer = _tokenizer((*CHAT_TOKENS, "<image>", "<video>"))
    image, video = (tokenizer.convert_tokens_to_ids(token) for token in ("<image>", "<video>"))
    vision = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304}
    vision |= {"num_hidden_layers": 26, "num_attention_heads": 16, "image_size": 384, "patch_size": 14}
    config = hf.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **QWEN2_7B, "eos_token_id": tokenizer.eos_token_id},
        vision_config={**vision, "vision_use_head": False},
        image_token_index=image,
        video_token_index=video,
        image_token_id=image,
        video_token_id=video,
        architectures=["LlavaOnevisionForConditionalGeneration"],
    )
    return config, tokenizer


_MODELS = {
    "llava-onevision-7b": (_llava_onevision, {}),
    "qwen2.5-vl-7b": (_qwen2_5_vl, {}),
    # the published checkpoint's limits on the pixels of a whole video
    "qwen3-vl-8b": (_qwen3_vl, {"size": {"shortest_edge": 4096, "longest_edge": 25165824}}),
}
