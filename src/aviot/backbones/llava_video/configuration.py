"""The configuration of a video language model with AVIOT: encoder, decoder, compressor and connector."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from aviot.backbones.checkpoints.config_fields import (
    VIDEO_PLACEHOLDER,
    check_decoder,
    check_encoder,
    known_fields,
    model_rules,
    text_rules,
    vision_rules,
)
from aviot.backbones.checkpoints.folder import ORIGIN, read_json, resolve_folder
from aviot.backbones.checkpoints.foreign_code import refuse_named_code, refuse_trust
from aviot.config import CompressorConfig
from aviot.utils.values import as_whole

__all__ = ["VIDEO_PLACEHOLDER", "AviotConfig"]


class AviotConfig(PreTrainedConfig):
    """The config of a model with a SigLIP-like encoder and a decoder of the Qwen2 family, of any size.

    `vision_config` counts the layers that are run. The compressor's width and grid follow from it unless given.
    `pool_stride` divides the grid before the decoder; `ratio` is the default compression ratio.
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
                f"compressor_config.dim must be the encoder's hidden_size {self.vision_config.hidden_size}, "
                f"got {self.compressor_config['dim']}; leave it out to derive it"
            )
        if self.compressor_config["grid"] != (side, side):
            raise ValueError(
                f"compressor_config.grid must be image_size over patch_size, {(side, side)}, "
                f"got {self.compressor_config['grid']}; leave it out and it follows"
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
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """Read the config of one of our checkpoints: a folder or, with `download=True`, a name on the hub."""
        refuse_trust(kwargs)
        origin = {name: kwargs.pop(name) for name in ORIGIN if name in kwargs}
        path = Path(pretrained_model_name_or_path)
        if not path.is_file():
            path = resolve_folder(pretrained_model_name_or_path, **origin) / "config.json"
        read_json(path)  # names the file if it is too large or not JSON
        return super().from_pretrained(path, **kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Return the config with a file's values; known fields are checked, others are left out.

        The config of another model type is refused; without its own fields it would silently become the default config.
        """
        if config_dict.get("model_type", cls.model_type) != cls.model_type:
            raise ValueError(
                f"this config is of a {config_dict['model_type']!r} model; load such a checkpoint with "
                "AviotForConditionalGeneration.from_pretrained, or write it as ours with `aviot convert`"
            )
        refuse_named_code(config_dict, "config.json")
        values = known_fields(config_dict, model_rules())
        for name, rules in (("text_config", text_rules()), ("vision_config", vision_rules())):
            if name in values:
                values[name] = known_fields(values[name], rules, f"{name}.")
        made = super().from_dict(values, **kwargs)
        config = made[0] if isinstance(made, tuple) else made
        check_encoder(config.vision_config)
        check_decoder(config.text_config)
        return made

    @property
    def compressor(self) -> CompressorConfig:
        """The compressor's config as an object."""
        return CompressorConfig.from_dict(self.compressor_config)


def _sub_config(config: Any, default_type: str) -> Any:
    """Return a config object, made of a mapping or (None) of defaults if need be."""
    if isinstance(config, PreTrainedConfig):
        return config
    values = dict(config or {})
    return AutoConfig.for_model(values.pop("model_type", default_type), **values)
