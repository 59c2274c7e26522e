"""Families whose frames keep their shape: patches in merged blocks, and one token per block."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.backbones.attention import mean_of_blocks
from aviot.backbones.base import EncodedVideo
from aviot.backbones.huggingface.backbone import HuggingFaceBackbone
from aviot.backbones.huggingface.processing import Normalisation, Processing, frames_of, in_patches
from aviot.video import Video


class PatchedFrames(HuggingFaceBackbone):
    """A family that scales frames to multiples of a block of patches, and packs those of a video into one sequence.

    Its settings have `patch_size` and `merge_size`, the side of a block in patches.
    """

    def __init__(self, model: Any, processing: Processing) -> None:
        super().__init__(model, processing)
        self.scaling()  # refuses settings that it cannot follow, before weights are read

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the blocks of patches along each side."""
        block = self.settings["patch_size"] * self.settings["merge_size"]
        return size[0] // block, size[1] // block

    def pixels_of(self, video: Video) -> tuple[Float[Tensor, "n p"], Int[Tensor, "1 3"]]:
        """Return a video's patches and the numbers of its groups of frames, rows and columns of patches."""
        patch, merge, temporal = self.settings["patch_size"], self.settings["merge_size"], self.merged_frames
        frames = frames_of(video, patch * merge, self.device)
        patches = in_patches(Normalisation.of(self.settings)(frames), patch, merge, temporal)
        grid = [-(-len(frames) // temporal), frames.shape[1] // patch, frames.shape[2] // patch]
        return patches, torch.tensor([grid], device=patches.device)

    def patches_to_tokens(self, values: Float[Tensor, "n c"], encoded: EncodedVideo) -> Float[Tensor, "T P c"]:
        """Return the mean of the patches that are merged into each token; they follow each other."""
        return mean_of_blocks(values, len(encoded.times), self.settings["merge_size"] ** 2)
