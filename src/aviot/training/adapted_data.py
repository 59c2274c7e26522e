"""Videos and conversations for a family's model: read and tokenized in the data loader's processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aviot.backbones.huggingface.backbone import HuggingFaceBackbone
from aviot.backbones.huggingface.placing import IGNORED
from aviot.backbones.llava_video.prompt import check_turns, refuse_special_tokens
from aviot.budget import Budget
from aviot.data import Clip
from aviot.data.record import Turn
from aviot.video import Video


@dataclass(frozen=True)
class FamilyConversation:
    """A conversation with the number of its tokens; they are tokenized again with the texts between a video's frames.

    `ids` and `labels` have one placeholder for the video, and no text between its frames.
    """

    ids: list[int]
    labels: list[int]
    turns: tuple[Turn, ...]
    system: str | None
    questions: tuple[tuple[int, int], ...] = ((0, 0),)


class FamilyProcessor:
    """A backbone's reading and tokenizing, without its model.

    `square_tokens` is the number of tokens of a frame, of families whose frames are all scaled to one square.
    """

    def __init__(
        self, backbone: HuggingFaceBackbone, fps: float, max_frames: int, square_tokens: int | None = None
    ) -> None:
        self.backbone = backbone.without_model()
        self.tokenizer = backbone.tokenizer
        self.fps, self.max_frames, self.square_tokens = fps, max_frames, square_tokens
        self.image_size = backbone.image_size or 0

    def read(self, source: Any) -> Video:
        """Sample a video and scale its frames as the family does."""
        return self.backbone.read(source, fps=self.fps, max_frames=self.max_frames)

    def pixels(self, frames: Any) -> Tensor:
        """Return frames, uint8 [T,H,W,3]; the backbone normalises them."""
        return torch.from_numpy(np.ascontiguousarray(frames))

    def encode_conversation(
        self, turns: Sequence[Turn], duration: float, times: Sequence[float], system: str | None = None
    ) -> FamilyConversation:
        """Tokenize a conversation; ValueError if it cannot be learned."""
        special = self.tokenizer.all_special_tokens
        check_turns(turns, special)
        if system is not None:
            refuse_special_tokens("the system text", system, special)
        ids: list[int] = []
        labels: list[int] = []
        for segment in self.backbone.segments(turns, system):
            tokens = self.backbone.token_ids(segment.text)
            ids += tokens
            labels += tokens if segment.supervised else [IGNORED] * len(tokens)
        return FamilyConversation(ids, labels, tuple(turns), system)

    def visual_tokens(self, clip: Clip, ratio: float) -> int:
        """Return the number of a video's tokens at a ratio, with the texts between its frames."""
        frames, patches = self._grid(clip)
        supports = Budget.of(ratio).frames(frames, patches)
        video = Video(np.empty(0), tuple(range(len(clip))), clip.times, clip.duration, 1.0, len(clip), "")
        spread = [clip.times[number * len(clip.times) // supports] for number in range(supports)]
        texts = self.backbone.frame_texts(spread, video)
        return supports * patches + sum(len(self.backbone.token_ids(text)) for text in texts)

    def _grid(self, clip: Clip) -> tuple[int, int]:
        """Return the numbers of the encoder's frames and of their tokens."""
        if clip.features is not None:
            return clip.features.shape[0], clip.features.shape[1]
        assert clip.pixels is not None  # a clip has one of the two
        frames, height, width, _ = clip.pixels.shape
        if self.square_tokens is not None:
            return frames, self.square_tokens
        scaling = self.backbone.scaling()
        return -(-frames // scaling.temporal), (height // scaling.factor) * (width // scaling.factor)

    def save_pretrained(self, folder: Any) -> None:
        """Write nothing: the base model's processor is with the base."""
