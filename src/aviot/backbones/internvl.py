"""InternVL3 and 3.5: each frame a shuffled square of tokens after its number in the text.

The text has no times: `Frame3:` is the third frame that was sampled. A support has the number of the sampled frame
nearest to its time, so that the numbers tell when it is, as those of an uncompressed video do.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from aviot.backbones.attention import attention_modules, in_use, mean_of_squares
from aviot.backbones.base import EncodedVideo, VideoInPrompt
from aviot.backbones.huggingface.layout import nearest
from aviot.backbones.llava_onevision import SquareFrames
from aviot.video import Video


class InternVL(SquareFrames):
    """InternVL3 and InternVL3.5."""

    family = "internvl"
    model_types = ("internvl",)
    modality = "image"
    placeholder = in_template = "<video>"
    token = "<IMG_CONTEXT>"

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the shuffled patches along each side."""
        rows, columns = (round(side * self.model.config.downsample_ratio) for side in self.patches)
        return rows, columns

    def encode_one(self, video: Video, pixels: Float[Tensor, "T 3 H W"]) -> EncodedVideo:
        """Return projected tokens of every frame, on the path of images."""
        found = self.model.get_image_features(
            pixel_values=pixels,
            vision_feature_layer=self.model.config.vision_feature_layer,
            vision_feature_select_strategy=self.model.config.vision_feature_select_strategy,
            return_dict=True,
        )
        tokens = found.pooler_output
        side = round(tokens.shape[1] ** 0.5)
        return EncodedVideo(video, tokens, (side, side))

    def encoder_layers(self) -> Sequence[nn.Module]:
        """Return the layers up to the one whose output is projected."""
        return in_use(attention_modules(self.model.model.vision_tower), self.model.config.vision_feature_layer)

    def patches_to_tokens(self, values: Float[Tensor, "n c"], encoded: EncodedVideo) -> Float[Tensor, "T P c"]:
        """Return the mean of the patches that are shuffled into each token; the class token is dropped."""
        side = round(1 / self.model.config.downsample_ratio)
        return mean_of_squares(values, len(encoded.times), side, skipped=1)

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return the number of the frame nearest to each time before its marked tokens, one frame per line."""
        starts = [f"Frame{nearest(time, video.times) + 1}: <img>" for time in times]
        return [starts[0], *("</img>\n" + start for start in starts[1:]), "</img>"]

    def encoder_output(self, videos: Sequence[VideoInPrompt]) -> BaseModelOutputWithPooling:
        """Return the tokens of all prompts one after another; equally many are a batch, as beams need it."""
        tokens = [video.tokens for video in videos]
        equal = len({len(one) for one in tokens}) == 1
        return BaseModelOutputWithPooling(pooler_output=torch.stack(tokens) if equal else torch.cat(tokens)[None])
