"""Configuration, model and processor by the conventions of Hugging Face, registered with its Auto classes."""

from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.modeling import AviotForConditionalGeneration
from aviot.backbones.llava_video.processing import AviotProcessor

AutoConfig.register(AviotConfig.model_type, AviotConfig, exist_ok=True)
AutoModelForImageTextToText.register(AviotConfig, AviotForConditionalGeneration, exist_ok=True)
AutoProcessor.register(AviotConfig, AviotProcessor, exist_ok=True)

__all__ = ["AviotConfig", "AviotForConditionalGeneration", "AviotProcessor"]
