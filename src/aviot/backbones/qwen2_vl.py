"""Qwen2-VL and Qwen2.5-VL: two frames per token grid, any resolution, and time in the rotary embeddings.

Temporal positions are those of the uncompressed video: a kept token has its own, a support that of its mean time. The
text after the video continues where the installed version of transformers continues it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.backbones.attention import attention_modules
from aviot.backbones.base import EncodedVideo
from aviot.backbones.huggingface.layout import AfterVideo, TokenLayout, rope_positions, ticks
from aviot.backbones.huggingface.patches import PatchedFrames
from aviot.backbones.huggingface.processing import (
    CLIP_PIXELS,
    Processing,
    merged_times,
    pixel_limits,
)
from aviot.video import PatchScaling, Video


class QwenEncoding(PatchedFrames):
    """The encoder input and output that the Qwen families share: merged blocks of patches, pairs of frames."""

    def __init__(self, model: Any, processing: Processing) -> None:
        super().__init__(model, processing)
        vision = model.config.vision_config
        self.check_settings(
            patch_size=vision.patch_size,
            merge_size=vision.spatial_merge_size,
            temporal_patch_size=vision.temporal_patch_size,
        )

    def encode_one(self, video: Video, pixels: tuple[Tensor, Tensor]) -> EncodedVideo:
        """Return merged tokens, row by row, and what deeper layers add to them."""
        patches, grid = pixels
        found = self.model.get_video_features(pixel_values_videos=patches, video_grid_thw=grid, return_dict=True)
        merge = self.settings["merge_size"]
        frames, rows, columns = grid[0].tolist()
        size = rows // merge, columns // merge
        (tokens,) = found.pooler_output
        deeper = getattr(found, "deepstack_features", None) or ()
        extras = {f"deepstack_{layer}": one.unflatten(0, (frames, -1)) for layer, (one,) in enumerate(deeper)}
        times = merged_times(tuple(video.times), self.settings["temporal_patch_size"])
        return EncodedVideo(video, tokens.unflatten(0, (frames, -1)), size, times=times, extras=extras)

    @property
    def packing_encoder(self) -> nn.Module:
        """The encoder."""
        return self.model.model.visual

    def encoder_layers(self) -> Sequence[nn.Module]:
        """Return all layers of the encoder."""
        return attention_modules(self.model.model.visual)


class Qwen2VL(QwenEncoding):
    """Qwen2-VL: one temporal position per pair of frames."""

    family = "qwen2-vl"
    model_types = ("qwen2_vl",)
    defaults: ClassVar = {
        "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 768 * 28 * 28},
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "max_frames": 768,
        "cap_pixels_per_frame": False,
        "max_video_tokens": 128_000,
        **CLIP_PIXELS,
    }

    def scaling(self) -> PatchScaling:
        """Return multiples of a merged patch's side, within limits on the pixels of a frame."""
        least, most = pixel_limits(self.settings)
        return PatchScaling(
            factor=self.settings["patch_size"] * self.settings["merge_size"],
            least=least,
            most=most,
            limit="frame-capped" if self.settings["cap_pixels_per_frame"] else "frame",
            most_tokens=self.settings["max_video_tokens"],
            temporal=self.settings["temporal_patch_size"],
            filter=self.filter,
        )

    def temporal_axis(self, video: Video) -> list[float]:
        """Return the temporal position of each pair of frames: its number."""
        return [float(pair) for pair in range(-(-len(video) // self.settings["temporal_patch_size"]))]

    @cached_property
    def after_video(self) -> AfterVideo:
        """The rule for the text after a video, found by asking the installed model class about an example.

        transformers 4.57 continued after the largest position, 5.22 after the longer side of the grid.
        """
        merge = self.model.config.vision_config.spatial_merge_size
        kinds = torch.tensor([[2] * 9 + [0]])
        positions, _ = self.model.model.get_rope_index(
            torch.zeros_like(kinds), mm_token_type_ids=kinds, video_grid_thw=torch.tensor([[9, merge, merge]])
        )
        return "grid" if int(positions[0, 0, -1]) == 1 else "maximum"

    def rope(self, length: int, runs: list[tuple[int, int]], layout: TokenLayout, video: Video) -> Int[Tensor, "3 L"]:
        """Return time, row and column of every token."""
        cells = layout.positions[:, 1:].round().long()
        offsets = torch.cat((ticks(layout, self.temporal_axis(video))[:, None], cells), 1)
        return rope_positions(length, runs, offsets, max(layout.grid), self.after_video)


class Qwen2_5VL(Qwen2VL):
    """Qwen2.5-VL: temporal positions count time."""

    family = "qwen2.5-vl"
    model_types = ("qwen2_5_vl",)

    def patches_to_tokens(self, values: Float[Tensor, "n c"], encoded: EncodedVideo) -> Float[Tensor, "T P c"]:
        """Return the mean of the patches that are merged into each token, from the order of windows to that of rows."""
        vision, frames = self.model.config.vision_config, len(encoded.times)
        side = vision.window_size // vision.patch_size // vision.spatial_merge_size
        order = window_order(frames, encoded.grid, side).to(values.device)
        by_window = super().patches_to_tokens(values, encoded).flatten(0, 1)
        return torch.empty_like(by_window).index_copy_(0, order, by_window).unflatten(0, (frames, -1))

    def temporal_axis(self, video: Video) -> list[float]:
        """Return the temporal position of each pair of frames: the time of its first one, in the encoder's units."""
        per_second = self.model.config.vision_config.tokens_per_second
        firsts = video.times[:: self.settings["temporal_patch_size"]]
        return [(time - firsts[0]) * per_second for time in firsts]


def window_order(frames: int, grid: tuple[int, int], side: int) -> Int[Tensor, "n"]:
    """Return the tokens of all frames, numbered row by row, in the order of windows of side x side of them."""
    shape = (frames, *grid)
    frame, row, column = (torch.arange(size) for size in shape)
    across = -(-grid[1] // side)
    window = (row // side)[:, None] * across + column // side
    inside = (row % side)[:, None] * side + column % side
    of_frame = (window * side**2 + inside).flatten().argsort()
    return (frame[:, None] * of_frame.numel() + of_frame).flatten()
