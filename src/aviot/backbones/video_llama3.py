"""VideoLLaMA3: frames of any resolution, each after its time in the text.

The family drops tokens whose pixels hardly change from frame to frame. That rule is its own compression: uncompressed
videos follow it here too, and methods that compress read every token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aviot.backbones.attention import attention_modules
from aviot.backbones.base import EncodedVideo
from aviot.backbones.huggingface.patches import PatchedFrames
from aviot.backbones.huggingface.processing import (
    HALF_PIXELS,
    Processing,
    pixel_limits,
)
from aviot.methods.base import Compressed, Method
from aviot.video import PatchScaling, Video

LEAST_CHANGE = 0.1  # mean change of a patch's values, times 255, above which its token is kept


@dataclass(frozen=True)
class ChangingVideo(EncodedVideo):
    """An encoded video, with the tokens whose pixels changed since the frame before."""

    changed: Bool[Tensor, "T S"] | None = None


class VideoLlama3(PatchedFrames):
    """VideoLLaMA3."""

    family = "video-llama3"
    model_types = ("video_llama_3",)
    placeholder = token = in_template = "<|video_pad|>"
    defaults: ClassVar = {
        "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 768 * 28 * 28},
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "max_frames": 180,
        "use_token_compression": True,
        **HALF_PIXELS,
    }

    def __init__(self, model: Any, processing: Processing) -> None:
        super().__init__(model, processing)
        self.check_settings(patch_size=model.config.vision_config.patch_size, temporal_patch_size=1)

    def scaling(self) -> PatchScaling:
        """Return multiples of a merged patch's side; the frames share the largest number of pixels."""
        least, most = pixel_limits(self.settings)
        return PatchScaling(
            factor=self.settings["patch_size"] * self.settings["merge_size"],
            least=least,
            most=most,
            limit="shared",
            filter=self.filter,
        )

    def encode_one(self, video: Video, pixels: tuple[Tensor, Tensor]) -> EncodedVideo:
        """Return every frame's tokens, row by row."""
        patches, grid = pixels
        merge = self.settings["merge_size"]
        found = self.model.get_video_features(
            pixel_values_videos=patches,
            video_grid_thw=grid,
            video_merge_sizes=torch.tensor([merge], device=grid.device),
            return_dict=True,
        )
        frames, rows, columns = grid[0].tolist()
        (tokens,) = found.pooler_output
        size = rows // merge, columns // merge
        return ChangingVideo(video, tokens.unflatten(0, (frames, -1)), size, changed=self._changed(patches, frames))

    @property
    def packing_encoder(self) -> nn.Module:
        """The encoder."""
        return self.model.model.vision_model

    def encoder_layers(self) -> Sequence[nn.Module]:
        """Return all layers of the encoder."""
        return attention_modules(self.model.model.vision_model)

    def shortened(self, made: Compressed, method: Method, encoded: EncodedVideo) -> Compressed:
        """Drop the unchanged tokens of an uncompressed video."""
        if method.compresses or not isinstance(encoded, ChangingVideo) or encoded.changed is None:
            return made
        return made.subset(encoded.changed.flatten().nonzero()[:, 0])

    def _changed(self, patches: Float[Tensor, "n p"], frames: int) -> Bool[Tensor, "T S"]:
        """Return which tokens the family itself keeps: those that changed, and at least the first of every frame."""
        cells = patches.view(frames, -1, patches.shape[1] * self.settings["merge_size"] ** 2)
        changed = torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device)
        if frames > 1 and self.settings["use_token_compression"]:
            changed[1:] = cells.diff(dim=0).abs().mean(-1) * 255 > LEAST_CHANGE
            changed[~changed.any(1), 0] = True
        return changed

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return each time in seconds before the tokens of a frame."""
        return [*(f"{',' * (number > 0)}Time {time:.1f}s:" for number, time in enumerate(times)), ""]
