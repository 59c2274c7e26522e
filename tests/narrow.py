"""The small model's shape, a few channels wide: its grid, tokens and layers' kinds at a hundredth of the work."""

from transformers import Qwen2Config, SiglipVisionConfig

from aviot.models import AviotConfig
from aviot_lab.demo_model.architecture import small_config

FEW_UPDATES = 3  # of the solver: what is tested with this shape does not depend on how far it converged


def narrow_config(tokenizer, decoder_layers=1):
    small, heads = small_config(tokenizer), {"num_attention_heads": 2}
    vision = small.vision_config.to_dict() | heads
    vision |= {"num_hidden_layers": 1, "hidden_size": 12, "intermediate_size": 16}
    text = small.text_config.to_dict() | heads
    text |= {"num_hidden_layers": decoder_layers, "hidden_size": 16, "intermediate_size": 32}
    text.pop("layer_types", None)
    return AviotConfig(
        vision_config=SiglipVisionConfig(**vision),
        text_config=Qwen2Config(**text),
        compressor_config={"cost_dim": 8, "transport": {"updates": FEW_UPDATES}},
        pool_stride=small.pool_stride,
    )
