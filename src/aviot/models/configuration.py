"""The configuration of a video language model with AVIOT inside: vision, text, compressor, and what joins them."""

from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from aviot.config import CompressorConfig
from aviot.values import as_whole

VIDEO_PLACEHOLDER = -200  # no token of any vocabulary; published prompts mark the video with it


class AviotConfig(PreTrainedConfig):
    """Sub-configs for any SigLIP-like encoder and any decoder of the Qwen2 family; nothing of the 7B is written here.

    `vision_config` counts the layers that are run. The compressor's width and grid follow from it unless given.
    `pool_stride` divides the grid before the decoder, `ratio` is the compression of calls that name none.
    """

    model_type = "aviot"
    sub_configs = {"vision_config": AutoConfig, "text_config": AutoConfig}  # noqa: RUF012

    def __init__(
        self,
        vision_config: Any = None,
        text_config: Any = None,
        compressor_config: dict[str, Any] | CompressorConfig | None = None,
        pool_stride: int = 2,
        ratio: float = 4.0,
        transport_loss_weight: float = 1.0,
        video_token_id: int = VIDEO_PLACEHOLDER,
        **kwargs: Any,
    ) -> None:
        self.vision_config = _sub_config(vision_config, "siglip_vision_model")
        self.text_config = _sub_config(text_config, "qwen2")
        if isinstance(compressor_config, CompressorConfig):
            compressor_config = compressor_config.to_dict()
        side = self.vision_config.image_size // self.vision_config.patch_size
        derived = {"dim": self.vision_config.hidden_size, "grid": (side, side)}
        self.compressor_config = CompressorConfig.from_dict(derived | dict(compressor_config or {})).to_dict()
        if self.compressor_config["dim"] != self.vision_config.hidden_size:
            raise ValueError(
                f"compressor_config.dim must be the encoder's width {self.vision_config.hidden_size}, "
                f"got {self.compressor_config['dim']}; leave it out and it follows"
            )
        if as_whole(pool_stride) is None or pool_stride < 1:
            raise ValueError(f"pool_stride must be a whole number of at least 1, got {pool_stride!r}")
        self.pool_stride = pool_stride
        self.ratio = ratio
        self.transport_loss_weight = transport_loss_weight
        self.video_token_id = video_token_id
        kwargs.setdefault("tie_word_embeddings", bool(getattr(self.text_config, "tie_word_embeddings", False)))
        super().__init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Our configs only; another model's would silently become a default one."""
        if config_dict.get("model_type", cls.model_type) != cls.model_type:
            raise ValueError(
                f"this config is of a {config_dict['model_type']!r} model; load such a checkpoint with "
                "AviotForConditionalGeneration.from_pretrained, or write it as ours with `aviot convert`"
            )
        return super().from_dict(config_dict, **kwargs)

    @property
    def compressor(self) -> CompressorConfig:
        """The compressor's config as an object."""
        return CompressorConfig.from_dict(self.compressor_config)


def _sub_config(config: Any, default_type: str) -> Any:
    """A config object from an object, a mapping, or nothing."""
    if isinstance(config, PreTrainedConfig):
        return config
    values = dict(config or {})
    return AutoConfig.for_model(values.pop("model_type", default_type), **values)
