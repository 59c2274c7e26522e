"""SmolVLM2: each frame a shuffled square of tokens after its time in minutes and seconds, in a sentence of the text."""

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.backbones.attention import attention_modules, mean_of_squares
from aviot.backbones.base import EncodedVideo
from aviot.backbones.huggingface.processing import HALF_PIXELS, Processing
from aviot.backbones.llava_onevision import SquareFrames
from aviot.video import PatchScaling, Video

TEMPLATE = (
    "{{ '<|im_start|>' }}{% for message in messages %}{{ message['role'].capitalize() + ': ' }}"
    "{% for part in message['content'] %}{{ '<video>' if part['type'] == 'video' else part['text'] }}{% endfor %}"
    "{{ '<end_of_utterance>\n' }}{% endfor %}{{ 'Assistant:' if add_generation_prompt else '' }}"
)

LARGEST_SIDE = 4096  # that the family scales to on the way

UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


class SmolVLM(SquareFrames):
    """SmolVLM2."""

    family = "smolvlm"
    model_types = ("smolvlm",)
    modality = "image"
    placeholder = in_template = "<video>"
    token = "<image>"
    defaults: ClassVar = {
        **HALF_PIXELS,
        "size": {"longest_edge": 4 * 364},
        "max_image_size": {"longest_edge": 364},
        "resample": 1,
    }

    @classmethod
    def template_of(cls, processing: Processing) -> str:
        """Return the family's template for videos, which takes the place of any in the checkpoint."""
        return TEMPLATE

    def scaling(self) -> PatchScaling:
        """Return a square, by way of the longer side that the family scales to first."""
        side = self.settings["max_image_size"]["longest_edge"]
        by_way = self.settings["size"].get("longest_edge")
        if not by_way:
            raise ValueError(
                f"the video processor's size must have longest_edge, got {dict(self.settings['size'])}; copy "
                "video_preprocessor_config.json from the model's own checkpoint"
            )
        by_way = min(by_way, LARGEST_SIDE)
        return PatchScaling(size=(side, side), by_way=by_way, filter=self.filter)

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the shuffled patches along each side."""
        rows, columns = (side // self.model.config.scale_factor for side in self.patches)
        return rows, columns

    def encode_one(self, video: Video, pixels: Float[Tensor, "T 3 H W"]) -> EncodedVideo:
        """Return projected tokens of every frame, on the path of images."""
        mask = torch.ones(pixels.shape[0], *pixels.shape[2:], dtype=torch.bool, device=pixels.device)
        found = self.model.model.get_image_features(
            pixel_values=pixels[None], pixel_attention_mask=mask[None], return_dict=True
        )
        tokens = torch.cat(list(found.pooler_output)).unflatten(0, (len(video), -1))
        side = round(tokens.shape[1] ** 0.5)
        return EncodedVideo(video, tokens, (side, side))

    def encoder_layers(self) -> Sequence[nn.Module]:
        """Return all layers of the encoder."""
        return attention_modules(self.model.model.vision_model)

    def patches_to_tokens(self, values: Float[Tensor, "n c"], encoded: EncodedVideo) -> Float[Tensor, "T P c"]:
        """Return the mean of the patches that are shuffled into each token."""
        return mean_of_squares(values, len(encoded.times), self.model.config.scale_factor)

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return a sentence about the video, and each time before the marked tokens of a frame."""
        around = "<fake_token_around_image>"
        starts = [f"\nFrame from {int(time // 60):02d}:{int(time % 60):02d}:{around}<global-img>" for time in times]
        duration = str(timedelta(seconds=int(video.duration)))
        intro = (
            f"You are provided the following series of {in_words(len(times))} frames from a {duration} "
            "[H:MM:SS] video.\n"
        )
        return [intro + starts[0], *(around + start for start in starts[1:]), f"{around}\n\n"]


def in_words(count: int) -> str:
    """Return a number below ten thousand in English words, as the family's processor writes it."""
    if count < 20:
        return UNITS[count]
    if count < 100:
        tens, rest = divmod(count, 10)
        return TENS[tens - 2] + (f"-{UNITS[rest]}" if rest else "")
    size, name = (100, "hundred") if count < 1000 else (1000, "thousand")
    large, rest = divmod(count, size)
    joint = " and " if rest < 100 else ", "
    return f"{in_words(large)} {name}" + (joint + in_words(rest) if rest else "")
