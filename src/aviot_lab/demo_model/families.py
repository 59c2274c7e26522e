"""Kinds of small models in training: what the recipe needs to know of one, and the demo model's own kind."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from aviot.backbones.llava_video.processing import TokenConversation
from aviot.config import CompressorConfig
from aviot.models import AviotForConditionalGeneration
from aviot_lab.demo_model.architecture import small_processor
from aviot_lab.demo_model.batches import ConversationBatch, TrainingBatches
from aviot_lab.demo_model.curriculum import Curriculum
from aviot_lab.demo_model.learning import Answers, answer, encode
from aviot_lab.demo_model.patches import UNLABELLED
from aviot_lab.methods import CompressorName
from aviot_lab.world import RenderPlan


class ConversationTexts(Protocol):
    """Turns conversations about a video into tokens, with `VIDEO_PLACEHOLDER` in the place of the video."""

    def encode_conversation(
        self, turns: Sequence[tuple[str, str]], duration: float, times: Sequence[float]
    ) -> TokenConversation:
        """Return token ids, labels, and the ranges of the questions' tokens."""
        ...


class Family(ABC):
    """A model of one kind, with the parts that the recipe trains and looks into.

    `grid` has the encoder's patches, `stride` is the number of patches along a token's side, and `merged_frames` the
    number of frames that the encoder merges.
    """

    name: ClassVar[str]
    stride: ClassVar[int]
    merged_frames: ClassVar[int] = 1
    transport_weight: float = 0.0  # of the compressor's objective

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model, self.tokenizer = model, tokenizer

    @property
    @abstractmethod
    def texts(self) -> ConversationTexts:
        """The family's prompts."""

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the encoder's patches."""

    @property
    @abstractmethod
    def encoder(self) -> nn.Module:
        """The part that is frozen after its own phase."""

    @property
    @abstractmethod
    def encoder_layers(self) -> Sequence[nn.Module]:
        """The encoder's layers."""

    @property
    @abstractmethod
    def encoder_width(self) -> int:
        """The size of the encoder's features."""

    @property
    def decoder_layers(self) -> Sequence[nn.Module]:
        """The decoder's layers."""
        return self.model.model.language_model.layers

    @property
    def width(self) -> int:
        """The size of the decoder's embeddings."""
        return self.model.config.get_text_config().hidden_size

    @property
    def words(self) -> Float[Tensor, "W d"]:
        """The decoder's input embeddings."""
        return self.model.get_input_embeddings().weight

    @property
    @abstractmethod
    def compressor(self) -> CompressorConfig:
        """The compressor whose allocation the loss on relevance imitates."""

    def last_frames(self, frames: int) -> Int[Tensor, "T"]:
        """Return the last of the frames that each of the encoder's frames merges."""
        merged = self.merged_frames
        return torch.arange(merged - 1, frames + merged - 1, merged).clamp_max(frames - 1)

    def merged_names(self, seen: Int8[Tensor, "V T names"]) -> Int8[Tensor, "V t names"]:
        """Return which names merged frames show: those of any of their frames.

        A name that none shows is unlabelled if it is so in one of them.
        """
        parts = self._merged(seen)
        unlabelled = (parts == UNLABELLED).any(2)
        return torch.where((parts == 1).any(2), 1, torch.where(unlabelled, UNLABELLED, 0)).to(seen.dtype)

    def merged_flags(self, flags: Bool[Tensor, "N T"]) -> Bool[Tensor, "N t"]:
        """Return whether any of the frames that are merged is flagged."""
        return self._merged(flags[..., None]).any(2)[..., 0]

    def _merged(self, values: Tensor) -> Tensor:
        """Return values of frames [N,T,...] in groups of those that are merged, [N,t,merged,...]."""
        missing = -values.shape[1] % self.merged_frames
        padded = torch.cat((values, values[:, -1:].expand(-1, missing, *values.shape[2:])), 1)
        return padded.unflatten(1, (-1, self.merged_frames))

    @abstractmethod
    def encode(self, plans: Sequence[RenderPlan], videos: int) -> Float[Tensor, "V T S D"]:
        """Draw videos of one length and encode them, patches row by row."""

    @abstractmethod
    def cells(self, features: Float[Tensor, "V T S D"]) -> Float[Tensor, "V T rows columns d"]:
        """Return every token that the decoder would read, by frame, row and column."""

    @abstractmethod
    def by_cell(self, values: Float[Tensor, "B v d"]) -> Float[Tensor, "B T rows columns d"]:
        """Return values of all tokens of a prompt's video by frame, row and column, without those of separators."""

    @abstractmethod
    def frame_means(self, answers: Answers) -> Float[Tensor, "V T d"]:
        """Return each frame's mean in the decoder's space."""

    @abstractmethod
    def answer(
        self,
        u: Float[Tensor, "V T S D"],
        batch: ConversationBatch,
        *,
        ratio: float | None,
        compressor: CompressorName,
    ) -> Answers:
        """Answer a batch's questions about encoded videos with teacher forcing."""

    def freeze_encoder(self) -> None:
        """Stop training the encoder; on a GPU, cast it to the precision that it is used in."""
        if not next(self.encoder.parameters()).requires_grad:
            return
        self.encoder.requires_grad_(False)
        if next(self.encoder.parameters()).is_cuda:
            self.encoder.to(torch.bfloat16)


class LlavaFamily(Family):
    """The demo model's kind: SigLIP, positions, pooled tokens, a separator per row."""

    name = "llava"
    stride = 3
    model: AviotForConditionalGeneration

    def __init__(self, model: AviotForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__(model, tokenizer)
        self.transport_weight = model.config.transport_loss_weight

    @property
    def texts(self) -> ConversationTexts:
        """The prompts of LLaVA-Video."""
        return small_processor(self.tokenizer)

    @property
    def grid(self) -> tuple[int, int]:
        """SigLIP's."""
        return self.model.model.connector.grid

    @property
    def encoder(self) -> nn.Module:
        """SigLIP."""
        return self.model.model.vision_tower

    @property
    def encoder_layers(self) -> Sequence[nn.Module]:
        """SigLIP's layers."""
        return self.model.model.vision_tower.encoder.layers

    @property
    def encoder_width(self) -> int:
        """SigLIP's width."""
        return self.model.config.vision_config.hidden_size

    @property
    def compressor(self) -> CompressorConfig:
        """The model's own."""
        return self.model.config.compressor

    def encode(self, plans: Sequence[RenderPlan], videos: int) -> Float[Tensor, "V T S D"]:
        """Run the vision tower."""
        return encode(self.model, plans, videos)

    def cells(self, features: Float[Tensor, "V T S D"]) -> Float[Tensor, "V T rows columns d"]:
        """Add positions and project."""
        path = self.model.model
        return self.by_cell(path.project(path.prepare(features, relevance=False).x))

    def by_cell(self, values: Float[Tensor, "B v d"]) -> Float[Tensor, "B T rows columns d"]:
        """Leave out the separator after each row."""
        rows, columns = self.model.model.connector.pooled
        return values.unflatten(1, (-1, rows, columns + 1))[..., :-1, :]

    def frame_means(self, answers: Answers) -> Float[Tensor, "V T d"]:
        """Project the features' means."""
        x = answers.x
        return self.model.model.connector.frame_means(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    def answer(
        self,
        u: Float[Tensor, "V T S D"],
        batch: ConversationBatch,
        *,
        ratio: float | None,
        compressor: CompressorName,
    ) -> Answers:
        """Compress, place and decode."""
        return answer(self.model, u, batch, ratio=ratio, compressor=compressor)


def family_of(model: Any, tokenizer: PreTrainedTokenizerFast) -> Family:
    """Return the family of a model."""
    if isinstance(model, AviotForConditionalGeneration):
        return LlavaFamily(model, tokenizer)
    from aviot_lab.demo_model.qwen import QwenFamily

    return QwenFamily(model, tokenizer)


def batches_of(
    curriculum: Curriculum, tokenizer: PreTrainedTokenizerFast, family: Family | None = None
) -> TrainingBatches:
    """Return the batches of a curriculum for a family; the default is the demo model's."""
    if family is None:
        return TrainingBatches(curriculum, tokenizer)
    return TrainingBatches(curriculum, tokenizer, family.texts, family.merged_frames)
