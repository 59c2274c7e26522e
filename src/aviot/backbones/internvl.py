"""InternVL3 and 3.5: each frame a shuffled square of tokens after its number in the text.

`Frame3:` is the number of the support, as the family counts the frames that it is shown; the text has no times.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from aviot.backbones.base import EncodedVideo, VideoInPrompt
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

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return each frame's number before its marked tokens, one frame per line."""
        starts = [f"Frame{number}: <img>" for number in range(1, len(times) + 1)]
        return [starts[0], *("</img>\n" + start for start in starts[1:]), "</img>"]

    def encoder_output(self, videos: Sequence[VideoInPrompt]) -> BaseModelOutputWithPooling:
        """Return the tokens of all prompts one after another; equally many are a batch, as beams need it."""
        tokens = [video.tokens for video in videos]
        equal = len({len(one) for one in tokens}) == 1
        return BaseModelOutputWithPooling(pooler_output=torch.stack(tokens) if equal else torch.cat(tokens)[None])
