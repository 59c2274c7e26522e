"""The Hugging Face seam: configuration, model, processor, checkpoints. The only layer that knows transformers."""

from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from aviot.models.configuration import AviotConfig
from aviot.models.modeling import AviotForConditionalGeneration
from aviot.models.processing import AviotProcessor

AutoConfig.register(AviotConfig.model_type, AviotConfig, exist_ok=True)
AutoModelForImageTextToText.register(AviotConfig, AviotForConditionalGeneration, exist_ok=True)
AutoProcessor.register(AviotConfig, AviotProcessor, exist_ok=True)

__all__ = ["AviotConfig", "AviotForConditionalGeneration", "AviotProcessor"]
