"""LLaVA-OneVision: each frame a pooled square of tokens, all frames together, one separator after the last."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from aviot.backbones.base import EncodedVideo, VideoInPrompt
from aviot.backbones.huggingface.backbone import HuggingFaceBackbone
from aviot.backbones.huggingface.processing import FILTERS, Normalisation, frames_of
from aviot.video import PatchScaling, Video


class SquareFrames(HuggingFaceBackbone):
    """A family that scales every frame to one square, whatever its aspect ratio."""

    defaults: ClassVar = {
        "size": {"height": 384, "width": 384},
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": (0.48145466, 0.4578275, 0.40821073),
        "image_std": (0.26862954, 0.26130258, 0.27577711),
    }

    def __init__(self, model: Any, processing: Any) -> None:
        super().__init__(model, processing)
        size = self.scaling().size
        assert size is not None  # the scaling of these families has one
        self.image_size = size[0]

    def scaling(self) -> PatchScaling:
        """Return the encoder's square."""
        size = self.settings["size"]
        if not size.get("height") or not size.get("width") or self.settings.get("do_center_crop"):
            raise ValueError(
                f"the video processor must scale to one size with height and width, got size {dict(size)} and "
                f"do_center_crop {self.settings.get('do_center_crop')}; copy video_preprocessor_config.json from the "
                "model's own checkpoint"
            )
        return PatchScaling(size=(size["height"], size["width"]), filter=FILTERS[self.settings["resample"]])

    def pixels_of(self, video: Video) -> Float[Tensor, "T 3 H W"]:
        """Return normalised frames."""
        frames = frames_of(video, 1, self.device)
        expected = self.scaling().size
        if tuple(frames.shape[1:3]) != expected:
            raise ValueError(
                f"frames must be {expected}, got {tuple(frames.shape[1:3])}; give VideoLM.open the file or array "
                "itself, it scales the frames"
            )
        return Normalisation.of(self.settings)(frames)


class LlavaOneVision(SquareFrames):
    """LLaVA-OneVision."""

    family = "llava-onevision"
    model_types = ("llava_onevision",)
    placeholder = token = in_template = "<video>"

    def encode_one(self, video: Video, pixels: Float[Tensor, "T 3 H W"]) -> EncodedVideo:
        """Return projected and pooled tokens, without the separator."""
        found = self.model.get_video_features(
            pixel_values_videos=pixels[None],
            vision_feature_layer=self.model.config.vision_feature_layer,
            vision_feature_select_strategy=self.model.config.vision_feature_select_strategy,
            return_dict=True,
        )
        tokens = found.pooler_output[0, :-1].unflatten(0, (len(video), -1))
        side = round(tokens.shape[1] ** 0.5)
        return EncodedVideo(video, tokens, (side, side))

    def with_structure(
        self, tokens: Float[Tensor, "n d"], order: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, "v d"], Int[Tensor, "v"]]:
        """Add the separator after the last token."""
        newline = self.model.model.image_newline[None].to(tokens)
        return torch.cat((tokens, newline)), torch.cat((order, order.new_full((1,), -1)))

    def encoder_output(self, videos: Sequence[VideoInPrompt]) -> BaseModelOutputWithPooling:
        """Return the tokens of all prompts one after another; equally many are a batch, as beams need it."""
        tokens = [video.tokens for video in videos]
        equal = len({len(one) for one in tokens}) == 1
        return BaseModelOutputWithPooling(pooler_output=torch.stack(tokens) if equal else torch.cat(tokens)[None])
