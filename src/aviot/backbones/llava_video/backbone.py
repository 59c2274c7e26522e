"""LLaVA-Video as a backbone: our layout, the published AVIOT one and LLaVA-NeXT's all load as one model."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.attention import EXTRAS, EncoderAttention, attention_modules, cached
from aviot.backbones.base import (
    Backbone,
    CompressionRequest,
    EncodedVideo,
    History,
    Prompt,
    StoredBackbone,
    VideoInPrompt,
    VideoShape,
)
from aviot.backbones.checkpoints.folder import CheckpointError
from aviot.backbones.llava_video.checkpoint import read_checkpoint_folder
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.features_to_tokens import STRUCTURE
from aviot.backbones.llava_video.layouts import LAYOUT_OF_TYPE
from aviot.backbones.llava_video.modeling import AviotForConditionalGeneration
from aviot.backbones.llava_video.processing import AviotProcessor, as_pixels
from aviot.backbones.llava_video.prompt import chat_prompt, question_range
from aviot.backbones.llava_video.prompt_batch import EmbeddedPrompt, Prompts
from aviot.backbones.questions import question_tokens
from aviot.budget import Budget
from aviot.engine.base import DecoderInput
from aviot.methods.aviot.method import frame_relevance
from aviot.methods.base import Compressed, FrameMethod, Method
from aviot.methods.features import VideoFeatures
from aviot.video import Frames, Transform, Video, read_video

BENCHMARK_TOKENS = 60  # length of a benchmark's prompt without a tokenizer


class LlavaVideo(Backbone):
    """A model of the LLaVA-Video layout with AVIOT's parts: each frame a pooled grid of tokens, a separator per row."""

    family = "llava-video"
    trained = "model"

    def __init__(self, model: AviotForConditionalGeneration, processor: AviotProcessor | None) -> None:
        self.model, self.processor = model, processor
        self.tokenizer = None if processor is None else processor.tokenizer
        self.image_size = model.config.vision_config.image_size

    @classmethod
    def handles(cls, config: Mapping[str, Any]) -> bool:
        """Return whether config.json belongs to one of the three layouts."""
        return config.get("model_type") in LAYOUT_OF_TYPE

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> Self:
        """Load model and processor."""
        processor = AviotProcessor.from_pretrained(folder)
        model = AviotForConditionalGeneration.from_pretrained(folder).eval()
        _check_finite(folder, model.model.parts | {"position": model.model.position})
        return cls(model.to(device), processor)

    @classmethod
    def wrap(cls, model: Any, processor: Any) -> Self | None:
        """Return the backbone of a loaded model."""
        return cls(model, processor) if isinstance(model, AviotForConditionalGeneration) else None

    @classmethod
    def stored(cls, folder: Path) -> StoredBackbone:
        """Read config.json, the sampling and the tokenizer."""
        processor = AviotProcessor.from_pretrained(folder)
        sampling = {"fps": processor.fps, "max_frames": processor.max_frames, "image_size": processor.image_size}

        def prompt(question: str, span: tuple[int, int] | None) -> str:
            return chat_prompt(question, 1.0, (0.0, 0.5), span=span).text

        return StoredBackbone(Budget(ratio=read_checkpoint_folder(folder).config.ratio), sampling, prompt)

    @classmethod
    def shape_of(cls, folder: Path, frames: int, size: tuple[int, int]) -> VideoShape:
        """Return the numbers of tokens, which do not depend on the size of a video's frames."""
        return VideoShape(_decoder(read_checkpoint_folder(folder).config), frames)

    @property
    def default_budget(self) -> Budget:
        """The checkpoint's ratio."""
        return Budget(ratio=self.model.config.ratio)

    @property
    def decoder(self) -> DecoderShape:
        """The language model's shape."""
        return _decoder(self.model.config)

    @property
    def grid(self) -> tuple[int, int]:
        """The encoder's patch grid."""
        return self.model.model.connector.grid

    @property
    def tokens_per_frame(self) -> int:
        """Pooled rows, each with its separator."""
        return self.model.model.connector.tokens_per_support

    @property
    def max_length(self) -> int:
        """The language model's positions."""
        return self.model.config.text_config.max_position_embeddings

    @property
    def patch_cover(self) -> float:
        """Share of a frame's side that the patches cover; the encoder drops last pixels that do not fill a patch."""
        vision = self.model.config.vision_config
        return vision.image_size // vision.patch_size * vision.patch_size / vision.image_size

    def read(
        self,
        source: Any,
        *,
        transform: Transform | None = None,
        reader: Callable[..., Video] = read_video,
        **sampling: Any,
    ) -> Video:
        """Sample a video and scale its frames to the encoder's square."""
        return self._processor.read(source, transform=transform, reader=reader, **sampling)

    def pixels(self, videos: Sequence[Video]) -> Tensor:
        """Return the frames of all videos, one after another, as uint8 [F,3,H,W]."""
        frames = [as_pixels(np.asarray(video.frames)) for video in videos]
        return (frames[0] if len(frames) == 1 else torch.cat(frames)).to(self.device)

    @torch.inference_mode()
    def encode(self, videos: Sequence[Video], pixels: Tensor | None = None) -> list[EncodedVideo]:
        """Run the vision tower."""
        features = self.model.encode(self.pixels(videos) if pixels is None else pixels, [len(one) for one in videos])
        return [self.encoded_from(video, [one]) for video, one in zip(videos, features, strict=True)]

    @property
    def frames_at_once(self) -> int:
        """The frames of one call of the vision tower."""
        return self.model.model.frames_at_once

    @torch.inference_mode()
    def encode_chunk(self, frames: Frames) -> Tensor:
        """Run the vision tower once."""
        return self.model.model.encode_chunk(as_pixels(np.asarray(frames)).to(self.device))

    @torch.inference_mode()
    def encoded_from(self, video: Video, chunks: Sequence[Tensor]) -> EncodedVideo:
        """Put the features of a video's chunks together."""
        features = chunks[0] if len(chunks) == 1 else torch.cat(list(chunks))
        return EncodedVideo(video, features, self.grid, self.tokens_per_frame, structure=STRUCTURE)

    def prompt(
        self, question: str, video: Video, *, history: History = (), span: tuple[int, int] | None = None
    ) -> Prompt:
        """Build the chat prompt and embed it."""
        tokens = self._processor.encode_prompt(self._processor.prompt(question, video, history, span))
        found = self._embedded(question, self._processor.pad_prompts([tokens]))
        embedding = self.model.get_input_embeddings()

        def embed(ids: Tensor) -> Tensor:
            return embedding(ids.to(self.device))

        own = question_tokens(self.tokenizer, embed, question, span or question_range(question))
        return replace(found, question_tokens=own)

    def benchmark_prompt(self, video: Video) -> Prompt:
        """Return a prompt of usual length; without a tokenizer, one of the first token ids."""
        if self.processor is not None:
            return super().benchmark_prompt(video)
        ids = torch.arange(BENCHMARK_TOKENS)[None] % self.model.config.text_config.vocab_size
        ids[0, BENCHMARK_TOKENS // 3] = self.model.config.video_token_id
        span = torch.tensor([[BENCHMARK_TOKENS // 2, BENCHMARK_TOKENS - 10]])
        padded = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "question_span": span}
        own = ids[0, BENCHMARK_TOKENS // 2 : BENCHMARK_TOKENS - 10].to(self.device)
        with torch.inference_mode():
            return replace(self._embedded("", padded), question_tokens=self.model.get_input_embeddings()(own))

    @torch.inference_mode()
    def _embedded(self, question: str, padded: Mapping[str, Tensor]) -> Prompt:
        tensors = {name: tensor.to(self.device) for name, tensor in padded.items()}
        (embedded,) = self.model.model.embed_prompts(Prompts(**tensors, video_index=torch.zeros(1, dtype=torch.long)))
        return Prompt(question, embedded, embedded.question)

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """AVIOT's trained parts; none of a LLaVA-Video checkpoint as its authors publish it."""
        return {} if self.model.starts_fresh else self.model.model.parts

    @torch.inference_mode()
    def features(self, encoded: EncodedVideo, method: Method, *, conditioned: bool) -> VideoFeatures:
        """Return features with their positions, or every frame's projected tokens."""
        model, times = self.model.model, encoded.video.times
        relevance = conditioned and "frame_means" in method.needs
        prepared = model.prepare(encoded.features, relevance=relevance)
        if isinstance(method, FrameMethod):
            return model.features_of(prepared, times)
        found = model.unpooled_tokens if method.before_pooling else model.frame_tokens
        features = found(prepared.batch_of_one(), times).only(0)
        if method.uses_question and not conditioned:
            return features
        return replace(features, extras={**features.extras, **self.attention(encoded, method.needs)})

    def attention(self, encoded: EncodedVideo, needs: Collection[str]) -> dict[str, Tensor]:
        """Return those of a method's needs that the encoder's attention supplies; computed once per video."""
        if not EXTRAS & set(needs):
            return {}
        frames = len(encoded.video)
        supply = EncoderAttention(
            attention_modules(self.model.model.vision_tower),
            run=lambda: self.encode([encoded.video]),
            frames=frames,
            to_tokens=lambda values: values.unflatten(0, (frames, -1)),
            pooling=self.model.model.connector.pooling,
        )
        return cached(encoded.cache, EXTRAS & set(needs), supply.extras)

    @torch.inference_mode()
    def project(self, made: Compressed, method: Method) -> VideoInPrompt:
        """Project and pool whole frames, or put separators between projected tokens."""
        model = self.model.model
        if isinstance(method, FrameMethod):
            whole = made.tokens.unflatten(0, (-1, made.grid[0] * made.grid[1]))
            return VideoInPrompt(model.project(whole[None])[0], made)
        tokens, order = model.with_separators(made)
        return VideoInPrompt(tokens, made, order=order)

    @torch.inference_mode()
    def compress(
        self, encoded: Sequence[EncodedVideo], prompts: Sequence[Prompt], request: CompressionRequest
    ) -> list[VideoInPrompt]:
        """Compress the videos of all prompts together; those of single tokens one after another."""
        if request.step is None and not isinstance(self.method(request.method), FrameMethod):
            return super().compress(encoded, prompts, request)
        features = [one.features for one in encoded]
        done = dict(self.model.model.compress_prompts(_embedded_prompts(prompts), features, request))
        return [done[number] for number in range(len(prompts))]

    @torch.inference_mode()
    def place(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]) -> DecoderInput:
        """Put each video's tokens in the place of its prompt's placeholder."""
        embedded = _embedded_prompts(prompts)
        merged = self.model.model.place(embedded, videos)
        length = merged.embeds.shape[1]
        gaps = (merged.attention_mask == 0).sum(1).tolist()
        visual = tuple(
            (gap + prompt.placeholder, len(video.tokens))
            for gap, prompt, video in zip(gaps, embedded, videos, strict=True)
        )
        arguments = {"inputs_embeds": merged.embeds, "attention_mask": merged.attention_mask}
        return DecoderInput(arguments, length, visual, merged.finite)

    @torch.inference_mode()
    def relevance(self, encoded: EncodedVideo, prompt: Prompt) -> Float[Tensor, "T"]:
        """Return the cosine similarity of each projected frame's mean to the question's mean embedding."""
        means = self.model.model.prepare(encoded.features).frame_means
        assert means is not None  # computed by default
        assert prompt.question is not None  # the prompt of a question always has one
        return frame_relevance(means, prompt.question).float().cpu()

    @property
    def _processor(self) -> AviotProcessor:
        if self.processor is None:
            raise ValueError("reading videos and building prompts needs a processor; pass one to VideoLM")
        return self.processor


def _check_finite(folder: Path, parts: Mapping[str, nn.Module]) -> None:
    """Raise CheckpointError for NaN or infinity in AVIOT's parts: a softmax can hide minus infinity from later checks.

    The parts are small; NaN in the encoder or the decoder reaches the logits, which are checked with every answer.
    """
    for part, module in parts.items():
        for name, weight in module.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise CheckpointError(f"{folder}: model.{part}.{name} is not finite (NaN or infinity); it is damaged")


def _decoder(config: AviotConfig) -> DecoderShape:
    text = config.text_config
    return DecoderShape(
        layers=text.num_hidden_layers,
        width=text.hidden_size,
        feed_forward=text.intermediate_size,
        grid=config.compressor.grid,
        pool_stride=config.pool_stride,
    )


def _embedded_prompts(prompts: Sequence[Prompt]) -> list[EmbeddedPrompt]:
    """Return the prompts' embeddings, each with its video and the question that its compression is conditioned on."""
    return [prompt.content.conditioned_on(prompt.question, prompt.video) for prompt in prompts]
