"""Qwen3-VL, dense and mixture of experts, and Qwen3.5: each time of the video stands in the text before its tokens.

Text and tokens of one time are followed by the next; text continues past the longer side of a frame's whole grid,
however many of its tokens are kept.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from aviot.backbones.base import VideoInPrompt
from aviot.backbones.huggingface.layout import TokenLayout, rope_positions
from aviot.backbones.huggingface.processing import HALF_PIXELS, pixel_limits
from aviot.backbones.qwen2_vl import QwenEncoding
from aviot.video import PatchScaling, Video


class Qwen3VL(QwenEncoding):
    """Qwen3-VL: deeper layers of the decoder add features of the encoder to the visual tokens (deepstack)."""

    family = "qwen3-vl"
    model_types = ("qwen3_vl", "qwen3_vl_moe")
    defaults: ClassVar = {
        "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32},
        "patch_size": 16,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "fps": 2,
        "max_frames": 768,
        "cap_pixels_per_frame": False,
        "max_video_tokens": 768,
        **HALF_PIXELS,
    }

    def scaling(self) -> PatchScaling:
        """Return multiples of a merged patch's side, within limits on the pixels of the whole video."""
        least, most = pixel_limits({"size": self.settings["size"]})  # this family ignores older names
        return PatchScaling(
            factor=self.settings["patch_size"] * self.settings["merge_size"],
            least=least,
            most=most,
            limit="video-capped" if self.settings["cap_pixels_per_frame"] else "video",
            most_tokens=self.settings["max_video_tokens"],
            temporal=self.settings["temporal_patch_size"],
            filter=self.filter,
        )

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return each time in seconds before the marked tokens of a frame."""
        starts = [f"<{time:.1f} seconds><|vision_start|>" for time in times]
        return [starts[0], *("<|vision_end|>" + start for start in starts[1:]), "<|vision_end|>"]

    def rope(self, length: int, runs: list[tuple[int, int]], layout: TokenLayout, video: Video) -> Int[Tensor, "3 L"]:
        """Return row and column of every token in its frame; all of a frame have one temporal position."""
        cells = layout.positions[:, 1:].round().long()
        offsets = torch.cat((torch.zeros_like(cells[:, :1]), cells), 1)
        return rope_positions(length, runs, offsets, max(layout.grid), "grid")

    def encoder_output(self, videos: Sequence[VideoInPrompt]) -> BaseModelOutputWithDeepstackFeatures:
        """Return the tokens of all prompts, and their deepstack features layer by layer."""
        names = list(videos[0].layout.extras)
        layers = len(getattr(self.model.model.visual, "deepstack_merger_list", ()))
        if len(names) != layers:
            raise ValueError(
                f"the decoder adds features of {layers} encoder layers to the tokens, got those of {len(names)}; give "
                "`project` the encoded video too"
            )
        deeper = [tuple(video.layout.extras[name] for video in videos) for name in names]
        tokens = tuple(video.tokens for video in videos)
        return BaseModelOutputWithDeepstackFeatures(pooler_output=tokens, deepstack_features=deeper or None)


class Qwen3_5(Qwen3VL):
    """Qwen3.5: as Qwen3-VL, without deepstack."""

    family = "qwen3.5"
    model_types = ("qwen3_5", "qwen3_5_moe")
