"""Tiny random models of the families' real classes, with a tokenizer of bytes and the families' special tokens."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'video' %}VIDEO"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def new_tokenizer(special: tuple[str, ...], video: str, **names: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes; `video` is what the chat template writes for a video."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        extra_special_tokens=names,
    )
    fast.chat_template = CHAT.replace("VIDEO", video)
    return fast


def _text_sizes(tokenizer: PreTrainedTokenizerFast, **more: object) -> dict[str, object]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        **more,
    }


def _ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    def number(token: str) -> int:
        return tokenizer.convert_tokens_to_ids(token)

    return {
        "image_token_id": number("<|image_pad|>"),
        "video_token_id": number("<|video_pad|>"),
        "vision_start_token_id": number("<|vision_start|>"),
        "vision_end_token_id": number("<|vision_end|>"),
    }


def _ready(model: torch.nn.Module) -> torch.nn.Module:
    """Make random answers differ: larger weights than those that training starts from."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.copy_(torch.randn(weight.shape, generator=generator) * (0.7 / weight.shape[-1] ** 0.5))
    model.generation_config.do_sample = False
    return model.eval()


def qwen2_vl(version: str = "2.5"):
    """Return a Qwen2-VL or Qwen2.5-VL and its tokenizer."""
    import transformers as hf

    tokenizer = new_tokenizer(QWEN_TOKENS, "<|vision_start|><|video_pad|><|vision_end|>")
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    text = _text_sizes(tokenizer, rope_parameters=rope)
    if version == "2":
        vision = {"depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "patch_size": 14, "mlp_ratio": 2}
        config = hf.Qwen2VLConfig(text_config=text, vision_config=vision, **_ids(tokenizer))
        return _ready(hf.Qwen2VLForConditionalGeneration(config)), tokenizer
    vision = {"depth": 2, "hidden_size": 16, "out_hidden_size": 32, "num_heads": 2, "patch_size": 14}
    vision |= {"intermediate_size": 24, "window_size": 56, "fullatt_block_indexes": [1], "tokens_per_second": 2}
    config = hf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **_ids(tokenizer))
    return _ready(hf.Qwen2_5_VLForConditionalGeneration(config)), tokenizer


def qwen3_vl(kind: str = "dense"):
    """Return a Qwen3-VL, dense or a mixture of experts, or a Qwen3.5, and its tokenizer."""
    import transformers as hf

    tokenizer = new_tokenizer(QWEN_TOKENS, "<|vision_start|><|video_pad|><|vision_end|>")
    vision = {"depth": 3, "hidden_size": 16, "out_hidden_size": 32, "num_heads": 2, "patch_size": 16}
    vision |= {"intermediate_size": 24, "num_position_embeddings": 64}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    text = _text_sizes(tokenizer, head_dim=8, rope_parameters=rope)
    if kind == "3.5":
        text |= {"layer_types": ["linear_attention", "full_attention", "full_attention"]}
        text |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2}
        text |= {
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "rope_parameters": {**rope, "partial_rotary_factor": 1.0},
        }
        config = hf.Qwen3_5Config(text_config=text, vision_config=vision, **_ids(tokenizer))
        return _ready(hf.Qwen3_5ForConditionalGeneration(config)), tokenizer
    vision |= {"deepstack_visual_indexes": [0, 1]}
    if kind == "moe":
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        config = hf.Qwen3VLMoeConfig(text_config=text, vision_config=vision, **_ids(tokenizer))
        return _ready(hf.Qwen3VLMoeForConditionalGeneration(config)), tokenizer
    config = hf.Qwen3VLConfig(text_config=text, vision_config=vision, **_ids(tokenizer))
    return _ready(hf.Qwen3VLForConditionalGeneration(config)), tokenizer


def llava_onevision():
    """Return a LLaVA-OneVision and its tokenizer."""
    import transformers as hf

    tokenizer = new_tokenizer(("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"), "<video>")
    vision = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "image_size": 42, "patch_size": 6, "vision_use_head": False}
    number = tokenizer.convert_tokens_to_ids
    config = hf.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **_text_sizes(tokenizer)},
        vision_config=vision,
        image_token_index=number("<image>"),
        video_token_index=number("<video>"),
        image_token_id=number("<image>"),
        video_token_id=number("<video>"),
    )
    return _ready(hf.LlavaOnevisionForConditionalGeneration(config)), tokenizer


def internvl():
    """Return an InternVL and its tokenizer."""
    import transformers as hf

    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>")
    names = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    tokenizer = new_tokenizer(tokens, "<video>", video_token="<video>", **names)
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": [48, 48], "patch_size": [8, 8]}
    config = hf.InternVLConfig(
        text_config={"model_type": "qwen2", **_text_sizes(tokenizer)},
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=9,
    )
    return _ready(hf.InternVLForConditionalGeneration(config)), tokenizer


def video_llama3():
    """Return a VideoLLaMA3 and its tokenizer."""
    import transformers as hf

    tokenizer = new_tokenizer(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>"), "<|video_pad|>"
    )
    number = tokenizer.convert_tokens_to_ids
    vision = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 14,
    }
    config = hf.VideoLlama3Config(
        text_config={"model_type": "qwen2", **_text_sizes(tokenizer)},
        vision_config=vision,
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
    )
    return _ready(hf.VideoLlama3ForConditionalGeneration(config)), tokenizer


def smolvlm():
    """Return a SmolVLM and its tokenizer."""
    import transformers as hf

    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<end_of_utterance>", "<fake_token_around_image>")
    tokenizer = new_tokenizer((*tokens, "<global-img>", "<image>", "<video>"), "<video>")
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 48, "patch_size": 8}
    config = hf.SmolVLMConfig(
        text_config={"model_type": "llama", **_text_sizes(tokenizer)},
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    return _ready(hf.SmolVLMForConditionalGeneration(config)), tokenizer


FAMILIES = {
    "qwen2-vl": lambda: qwen2_vl("2"),
    "qwen2.5-vl": qwen2_vl,
    "qwen3-vl": qwen3_vl,
    "qwen3-vl-moe": lambda: qwen3_vl("moe"),
    "qwen3.5": lambda: qwen3_vl("3.5"),
    "llava-onevision": llava_onevision,
    "internvl": internvl,
    "video-llama3": video_llama3,
    "smolvlm": smolvlm,
}
PIXELS = dict.fromkeys(FAMILIES, "pixel_values_videos") | {"internvl": "pixel_values", "smolvlm": "pixel_values"}
NO_SINGLE_FRAMES = {"qwen3-vl", "qwen3-vl-moe", "qwen3.5"}  # families whose own processor refuses them
# LLaVA-OneVision's and InternVL's own processors refuse videos of different lengths, and SmolVLM's tells every prompt
# the longest one's number of frames.
ONE_LENGTH = {"llava-onevision", "internvl", "smolvlm"}
SIZE = {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 12}


def _processor(name: str, videos: str, images: str, **options):
    def make(tokenizer: PreTrainedTokenizerFast):
        import transformers as hf

        video = getattr(hf, videos)(**options.get("video", {}))
        template = {"chat_template": tokenizer.chat_template}
        return getattr(hf, name)(
            image_processor=getattr(hf, images)(),
            tokenizer=tokenizer,
            video_processor=video,
            **template,
            **options.get("own", {}),
        )

    return make


_QWEN2 = {"video": {"size": SIZE, "cap_pixels_per_frame": False}}
_QWEN3 = {
    "video": {"size": {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 40}, "cap_pixels_per_frame": False}
}
PROCESSORS = {
    "qwen2-vl": _processor("Qwen2VLProcessor", "Qwen2VLVideoProcessor", "Qwen2VLImageProcessor", **_QWEN2),
    "qwen2.5-vl": _processor("Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor", "Qwen2VLImageProcessor", **_QWEN2),
    **dict.fromkeys(
        ("qwen3-vl", "qwen3-vl-moe", "qwen3.5"),
        _processor("Qwen3VLProcessor", "Qwen3VLVideoProcessor", "Qwen2VLImageProcessor", **_QWEN3),
    ),
    "llava-onevision": _processor(
        "LlavaOnevisionProcessor",
        "LlavaOnevisionVideoProcessor",
        "LlavaOnevisionImageProcessor",
        video={"size": {"height": 42, "width": 42}},
        own={"num_image_tokens": 49, "vision_feature_select_strategy": "full"},
    ),
    "internvl": _processor(
        "InternVLProcessor",
        "InternVLVideoProcessor",
        "GotOcr2ImageProcessor",
        video={"size": {"height": 48, "width": 48}},
        own={"image_seq_length": 9},
    ),
    "video-llama3": _processor(
        "VideoLlama3Processor",
        "VideoLlama3VideoProcessor",
        "VideoLlama3ImageProcessor",
        video={"size": {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 60}},
    ),
    "smolvlm": _processor(
        "SmolVLMProcessor",
        "SmolVLMVideoProcessor",
        "SmolVLMImageProcessor",
        video={"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}},
        own={"image_seq_len": 9},
    ),
}


def nested(processor: object, values: list):
    """Return one value per prompt as the family's processor takes them."""
    return [[value] for value in values] if type(processor).__name__ == "SmolVLMProcessor" else values


def numbered(prompt, number: int):
    """Return a prompt about another video."""
    from dataclasses import replace

    return replace(prompt, video=number)
