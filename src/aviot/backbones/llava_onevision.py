"""LLaVA-OneVision: each frame a pooled square of tokens, all frames together, one separator after the last."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from aviot.backbones.attention import attention_modules, cached, in_use, pooling_of
from aviot.backbones.base import EncodedVideo, VideoInPrompt
from aviot.backbones.huggingface.backbone import HuggingFaceBackbone
from aviot.backbones.huggingface.processing import CLIP_PIXELS, Normalisation, frames_of
from aviot.methods.features import Structure
from aviot.video import PatchScaling, Video


class SquareFrames(HuggingFaceBackbone):
    """A family that scales every frame to one square, whatever its aspect ratio."""

    defaults: ClassVar = {
        "size": {"height": 384, "width": 384},
        **CLIP_PIXELS,
    }

    def __init__(self, model: Any, processing: Any) -> None:
        super().__init__(model, processing)
        height, width = self.frame_size(1, (1, 1))
        self.image_size = height
        expected = _sides(model.config.vision_config.image_size)
        if (height, width) != expected:
            raise ValueError(
                f"the processor scales frames to {width}x{height}, and the encoder of this {self.family} model takes "
                f"{expected[1]}x{expected[0]}; use the processor of the model's own checkpoint"
            )

    def scaling(self) -> PatchScaling:
        """Return the encoder's square."""
        size = self.settings["size"]
        if not size.get("height") or not size.get("width") or self.settings.get("do_center_crop"):
            raise ValueError(
                f"the video processor must scale to one size with height and width, got size {dict(size)} and "
                f"do_center_crop {self.settings.get('do_center_crop')}; copy video_preprocessor_config.json from the "
                "model's own checkpoint"
            )
        return PatchScaling(size=(size["height"], size["width"]), filter=self.filter)

    @property
    def patches(self) -> tuple[int, int]:
        """Rows and columns of the encoder's patches."""
        patch = _sides(self.model.config.vision_config.patch_size)
        rows, columns = (side // one for side, one in zip(self.frame_size(1, (1, 1)), patch, strict=True))
        return rows, columns

    @property
    def patch_cover(self) -> float:
        """Share of a frame's side that the patches cover; the encoder drops last pixels that do not fill a patch."""
        assert self.image_size is not None  # set when it was made
        return self.patches[0] * _sides(self.model.config.vision_config.patch_size)[0] / self.image_size

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


def _sides(size: int | Sequence[int]) -> tuple[int, int]:
    """Return height and width, which configs write as one number or two."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


class LlavaOneVision(SquareFrames):
    """LLaVA-OneVision."""

    family = "llava-onevision"
    model_types = ("llava_onevision",)
    placeholder = token = in_template = "<video>"
    structure_tokens = 1

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return half the patches along each side, rounded up."""
        return -(-self.patches[0] // 2), -(-self.patches[1] // 2)

    def encode_one(self, video: Video, pixels: Float[Tensor, "T 3 H W"]) -> EncodedVideo:
        """Return projected and pooled tokens, without the separator.

        They are those of the model's own `get_video_features`, which copies them to another layout before it
        interpolates: four tenths of the encoder's time on an H200.
        """
        grid = self.grid_of((pixels.shape[-2], pixels.shape[-1]))
        lattice = self._projected(pixels).unflatten(1, self.patch_grid).permute(0, 3, 1, 2)
        pooled = nn.functional.interpolate(lattice, size=grid, mode="bilinear")
        tokens = pooled.permute(0, 2, 3, 1).flatten(1, 2)
        return EncodedVideo(video, tokens, grid, structure=Structure(per_video=self.structure_tokens))

    def _projected(self, pixels: Float[Tensor, "T 3 H W"]) -> Float[Tensor, "T P d"]:
        """Return the projector's output for the encoder layers that the model's configuration names."""
        model, config = self.model.model, self.model.config
        every = model.vision_tower(pixels, output_hidden_states=True, return_dict=True).hidden_states
        layer = config.vision_feature_layer
        taken = every[layer] if isinstance(layer, int) else torch.cat([every[one] for one in layer], -1)
        if config.vision_feature_select_strategy == "default":
            taken = taken[:, 1:]
        return model.multi_modal_projector(taken)

    def encoder_layers(self) -> Sequence[nn.Module]:
        """Return the layers up to the one whose output is projected."""
        return in_use(attention_modules(self.model.model.vision_tower), self.model.config.vision_feature_layer)

    @property
    def patch_grid(self) -> tuple[int, int]:
        """The encoder's patches, which are projected before they are pooled."""
        vision = self.model.config.vision_config
        return (vision.image_size // vision.patch_size,) * 2

    def pooling(self, encoded: EncodedVideo) -> Float[Tensor, "rows columns P"]:
        """Return the weights of the family's bilinear interpolation."""
        return pooling_of(self.model.model.apply_pooling, math.prod(self.patch_grid), encoded.grid)

    @torch.inference_mode()
    def unpooled_tokens(self, encoded: EncodedVideo) -> tuple[Float[Tensor, "T P d"], tuple[int, int]]:
        """Return the projector's output; the encoder is run again for it, once per video."""

        def supply(_: object) -> dict[str, Tensor]:
            return {"unpooled": self._projected(self.pixels_of(encoded.video))}

        return cached(encoded.cache, ("unpooled",), supply)["unpooled"], self.patch_grid

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
