"""What the families of transformers' own video models share: loading, prompts, compression and placing of tokens.

A family encodes a video into projected tokens on a grid, and says how they are laid out in the prompt; the model's own
`generate` takes them as `mm_encoder_outputs`, in the place of what its encoder would have computed.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.attention import EXTRAS, EncoderAttention, cached, unpooled
from aviot.backbones.base import (
    Backbone,
    CompressionRequest,
    EncodedVideo,
    History,
    Prompt,
    StoredBackbone,
    VideoInPrompt,
    VideoShape,
    with_question,
)
from aviot.backbones.checkpoints.adapter import Adapter
from aviot.backbones.checkpoints.folder import CheckpointError
from aviot.backbones.huggingface.adapters import add_adapters, sampled_by, trained_parts
from aviot.backbones.huggingface.chat import ChatText, Segment, training_segments
from aviot.backbones.huggingface.layout import TokenLayout, layout_of, runs_of
from aviot.backbones.huggingface.loading import execution_device, load_model, read_config, upgrade_advice
from aviot.backbones.huggingface.packed_attention import use_packed_attention
from aviot.backbones.huggingface.processing import Processing
from aviot.backbones.loading import LoadOptions
from aviot.backbones.questions import question_tokens
from aviot.budget import Budget, one_per_prompt
from aviot.engine.base import DecoderInput
from aviot.methods.aviot.method import frame_relevance
from aviot.methods.base import Compressed, FrameMethod, Method
from aviot.methods.features import VideoFeatures
from aviot.video import PatchScaling, Transform, Video, read_video

DEFAULT_RATIO = 4.0
IGNORED = -100  # label of what is not supervised, torch's default `ignore_index`
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}{{ 'VIDEO' if part['type'] == 'video' else part['text'] }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}"
)


@dataclass(frozen=True)
class Row:
    """One prompt with its placeholders: token ids, and the indices of the visual ones among them.

    `labels` are the ids of what is supervised in training, `IGNORED` elsewhere.
    """

    ids: Int[Tensor, "L"]
    visual: Int[Tensor, "n"]
    positions: Int[Tensor, "3 L"] | None  # of families whose rotary embeddings have three axes
    labels: Int[Tensor, "L"]


class HuggingFaceBackbone(Backbone):
    """A model of transformers' own classes. Each subclass implements one family."""

    trained = "adapter"
    model_types: ClassVar[tuple[str, ...]]  # values of model_type in config.json
    modality: ClassVar[str] = "video"  # the key in `mm_encoder_outputs`
    placeholder: ClassVar[str] = "<|video_pad|>"  # stands for a video in the text of a prompt
    token: ClassVar[str] = "<|video_pad|>"  # stands for one visual token
    in_template: ClassVar[str] = "<|vision_start|><|video_pad|><|vision_end|>"  # a video in `TEMPLATE`
    defaults: ClassVar[Mapping[str, Any]]  # settings of the video processor

    def __init__(self, model: Any, processing: Processing) -> None:
        self.model, self.processing = model, processing
        self.tokenizer = processing.tokenizer
        self.settings = {**self.defaults, **{k: v for k, v in processing.video.items() if v is not None}}
        if self.settings.get("do_resize") is False:
            raise ValueError("the video processor has do_resize off, and frames of any size do not fit; turn it on")
        self.token_id = self.tokenizer.convert_tokens_to_ids(self.token)
        expected = getattr(model.config, f"{self.modality}_token_id", None)
        if self.token_id != expected:
            raise ValueError(
                f"the processor does not belong to this {self.family} model: its token {self.token!r} has the number "
                f"{self.token_id}, and the model expects {expected}; load both from one checkpoint"
            )

        most = model.config.get_text_config().vocab_size
        if len(self.tokenizer) > most:
            raise ValueError(
                f"the tokenizer has {len(self.tokenizer):,} tokens, and this {self.family} model knows {most:,}; load "
                "both from one checkpoint"
            )

    def check_settings(self, **expected: int) -> None:
        """Refuse a processor whose patches are not those of the model's encoder."""
        wrong = [name for name, value in expected.items() if self.settings[name] != value]
        if wrong:
            found = ", ".join(f"{name} {self.settings[name]} (the encoder has {expected[name]})" for name in wrong)
            raise ValueError(
                f"the processor does not belong to this {self.family} model: it has {found}; use the processor of the "
                "model's own checkpoint"
            )

    @classmethod
    def handles(cls, config: Mapping[str, Any]) -> bool:
        """Return whether config.json names one of the family's model types."""
        return config.get("model_type") in cls.model_types

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> Self:
        """Load model and tokenizer; only safetensors are read, and no code of the checkpoint is run."""
        return cls.load_with(folder, device, LoadOptions())

    @classmethod
    def load_with(cls, folder: Path, device: torch.device, options: LoadOptions) -> Self:
        """Load model and tokenizer in another type, over several devices, or quantised."""
        outline = cls.without_weights(folder)  # refuses what cannot work before weights are read
        return cls(load_model(folder, outline.model.config, device, options), outline.processing)

    @classmethod
    def without_weights(cls, folder: Path) -> Self:
        """Return the backbone with a config in the place of the model: it counts and scales, and encodes nothing."""
        config = read_config(folder)
        processing = Processing.from_folder(folder)
        try:
            return cls(SimpleNamespace(config=config), processing)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            raise CheckpointError(f"{folder}: {kind}{error}{upgrade_advice(folder)}") from error

    @classmethod
    def shape_of(cls, folder: Path, frames: int, size: tuple[int, int]) -> VideoShape:
        """Return the numbers of tokens of a video, by the family's scaling of its frames."""
        outline = cls.without_weights(folder)
        grid = outline.grid_of(outline.frame_size(frames, size))
        decoder = replace(outline.decoder, grid=grid, structure_tokens=outline.structure_tokens)
        return VideoShape(decoder, -(-frames // outline.merged_frames))

    @classmethod
    def wrap(cls, model: Any, processor: Any) -> Self | None:
        """Return the backbone of a loaded model."""
        if getattr(getattr(model, "config", None), "model_type", None) not in cls.model_types:
            return None
        return cls(model.eval(), Processing.from_processor(processor))

    def without_model(self) -> Self:
        """Return a copy that reads videos and texts alone, and can be sent to other processes."""
        other = copy(self)
        other.model = None
        other.__dict__.pop("parts", None)
        return other

    @classmethod
    def stored(cls, folder: Path) -> StoredBackbone:
        """Read the tokenizer, the chat template and the sampling."""
        processing = cls.without_weights(folder).processing

        def prompt(question: str, span: tuple[int, int] | None) -> str:
            return processing.chat(question, (), cls.template_of(processing))

        return StoredBackbone(Budget(ratio=DEFAULT_RATIO), processing.sampling(), prompt)

    @classmethod
    def template_of(cls, processing: Processing) -> str:
        """Return the checkpoint's chat template, or the common one if it has none."""
        return processing.template or TEMPLATE.replace("VIDEO", cls.in_template)

    @property
    def default_budget(self) -> Budget:
        """Ratio 4; these checkpoints have none of their own."""
        return Budget(ratio=DEFAULT_RATIO)

    @property
    def decoder(self) -> DecoderShape:
        """The language model's shape; the grid depends on the video."""
        text = self.model.config.get_text_config()
        feed_forward: int = getattr(text, "intermediate_size", 0)
        if experts := getattr(text, "num_experts_per_tok", None):  # those that each token passes
            shared = getattr(text, "shared_expert_intermediate_size", None) or 0
            feed_forward = experts * getattr(text, "moe_intermediate_size", feed_forward) + shared
        return DecoderShape(
            layers=text.num_hidden_layers,
            width=text.hidden_size,
            feed_forward=feed_forward,
            pool_stride=1,
            separators=False,
        )

    @cached_property
    def device(self) -> torch.device:
        """The device of the model's inputs; a model over several devices moves them on itself."""
        return execution_device(self.model)

    @property
    def max_length(self) -> int:
        """The language model's positions."""
        return self.model.config.get_text_config().max_position_embeddings

    @abstractmethod
    def scaling(self) -> PatchScaling:
        """Return the scaling of frames for the encoder."""

    def with_thumbnails(self, largest_side: int) -> Transform:
        """Return the family's scaling with thumbnails."""
        return replace(self.scaling(), thumbnail=largest_side)

    def frame_size(self, frames: int, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size that frames are scaled to."""
        return self.scaling().for_frames(frames).sizes(*size)[-1]

    @abstractmethod
    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the rows and columns of a frame's tokens; `size` is that of a scaled frame."""

    @property
    def merged_frames(self) -> int:
        """The number of frames that the encoder merges into one."""
        return self.scaling().temporal

    structure_tokens: ClassVar[int] = 0  # that a video has once

    def read(
        self,
        source: Any,
        *,
        transform: Transform | None = None,
        reader: Callable[..., Video] = read_video,
        **sampling: Any,
    ) -> Video:
        """Sample a video and scale its frames as the family's processor does."""
        chosen = self.processing.sampling() | {name: value for name, value in sampling.items() if value is not None}
        return reader(source, transform=transform or self.scaling(), **chosen)

    def pixels(self, videos: Sequence[Video]) -> list[Any]:
        """Return each video's frames on the device, in the encoder's input format."""
        return [self.pixels_of(video) for video in videos]

    @abstractmethod
    def pixels_of(self, video: Video) -> Any:
        """Return one video's frames on the device, in the encoder's input format."""

    @torch.inference_mode()
    def encode(self, videos: Sequence[Video], pixels: Any = None) -> list[EncodedVideo]:
        """Run the encoder and the projection to the decoder's width, video by video."""
        return self.encode_each(videos, pixels)

    def encode_each(self, videos: Sequence[Video], pixels: Any = None) -> list[EncodedVideo]:
        """Do the work of `encode` in the caller's gradient mode."""
        if (packing := self.packing_encoder) is not None:
            use_packed_attention(packing)
        inputs = self.pixels(videos) if pixels is None else pixels
        return [self.encode_one(video, one) for video, one in zip(videos, inputs, strict=True)]

    @abstractmethod
    def encode_one(self, video: Video, pixels: Any) -> EncodedVideo:
        """Encode one video."""

    @torch.inference_mode()
    def prompt(
        self, question: str, video: Video, *, history: History = (), span: tuple[int, int] | None = None
    ) -> Prompt:
        """Apply the checkpoint's chat template; the question is represented by the mean of its embeddings."""
        self._refuse_placeholders((question, *(part for turn in history for part in turn)))
        text = self.processing.chat(question, history, self.template_of(self.processing))
        self._check_template(text)
        first, last = span or (0, len(question))
        own = question_tokens(self.tokenizer, self._embed, question, (first, last))
        mean = self._mean_embedding([question[first:last] or question])
        return Prompt(question, ChatText(text, video), mean, question_tokens=own)

    def segments(self, turns: History, system: str | None = None) -> tuple[Segment, ...]:
        """Return a conversation for training in segments of text; ValueError if it cannot be learned.

        The first is the prompt of the first question, with a placeholder for the video.
        """
        self._refuse_placeholders((system or "", *(part for turn in turns for part in turn)))
        render = partial(self.processing.render, self.template_of(self.processing))
        segments = training_segments(turns, system, render)
        self._check_template(segments[0].text)
        return segments

    def conversation(self, turns: History, video: Video, *, system: str | None = None, number: int = 0) -> Prompt:
        """Return a conversation about a video for training; its tokens are conditioned on all questions together.

        `number` is the video's among several encoded ones.
        """
        first, *following = self.segments(turns, system)
        questions = [question for question, _ in turns]
        content = ChatText(first.text, video, tuple(following))
        return Prompt(questions[0], content, self._mean_embedding(questions), number)

    def _refuse_placeholders(self, texts: Sequence[str]) -> None:
        if any(self.placeholder in text or self.token in text for text in texts):
            raise ValueError(f"the text contains {self.token!r}, which stands for a video; leave it out")

    def _check_template(self, text: str) -> None:
        if text.count(self.placeholder) != 1:
            raise ValueError(
                f"the chat template writes {self.placeholder!r} {text.count(self.placeholder)} times for one video; "
                "use the chat template of the model's own checkpoint"
            )

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of text inside a prompt."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def _mean_embedding(self, questions: Sequence[str]) -> Float[Tensor, "d"]:
        """Return the mean input embedding of all questions' tokens."""
        asked = [number for question in questions for number in self.token_ids(question)]
        return self._embed(torch.tensor(asked)).mean(0)

    def _embed(self, ids: Int[Tensor, "L"]) -> Float[Tensor, "L d"]:
        """Return the input embeddings of token ids; weights that lie elsewhere are fetched by their own hooks."""
        return self.model.get_input_embeddings()(ids.to(self.device))

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """AVIOT's trained parts, if `install` was given some."""
        return self._parts

    _parts: Mapping[str, nn.Module] = MappingProxyType({})

    @property
    def width(self) -> int:
        """The size of the decoder's embeddings."""
        return self.model.config.get_text_config().hidden_size

    def install(self, parts: Mapping[str, nn.Module]) -> None:
        """Use these trained parts of AVIOT from now on."""
        self._parts = parts

    def adapt(self, folder: Path, adapter: Adapter) -> None:
        """Load AVIOT's trained parts and the decoder's low-rank adapters; videos are sampled as in training."""
        self.install(trained_parts(folder, adapter, self.width, self.device))
        if adapter.lora is not None:
            add_adapters(folder, adapter.lora, self.model.get_decoder())
        self.processing = replace(self.processing, sampled=sampled_by(adapter))

    def features(self, encoded: EncodedVideo, method: Method, *, conditioned: bool) -> VideoFeatures:
        """Return projected tokens, which methods at every point read, with the extras that a method needs."""
        extras = dict(encoded.extras)
        if "frame_means" in method.needs:
            extras["frame_means"] = encoded.features.mean(1)
        if conditioned or not method.uses_question:
            extras |= self.attention(encoded, method.needs)
        tokens, grid = encoded.features, encoded.grid
        if method.before_pooling:
            tokens, grid = self.unpooled_tokens(encoded)
            extras["pooling"] = self.pooling(encoded).to(tokens.device)
        return VideoFeatures(tokens, grid, encoded.times, encoded.tokens_per_frame, extras, encoded.structure)

    @torch.inference_mode()
    def attention(self, encoded: EncodedVideo, needs: Collection[str]) -> dict[str, Tensor]:
        """Return those of a method's needs that the encoder's attention supplies; computed once per video."""
        modules = self.encoder_layers()
        if not modules or not EXTRAS & set(needs):
            return {}
        supply = EncoderAttention(
            modules,
            run=lambda: self.encode_one(encoded.video, self.pixels_of(encoded.video)),
            frames=len(encoded.times),
            to_tokens=lambda values: self.patches_to_tokens(values, encoded),
            pooling=self.pooling(encoded),
        )
        return cached(encoded.cache, EXTRAS & set(needs), supply.extras)

    @property
    def packing_encoder(self) -> nn.Module | None:
        """The encoder, if it packs a video's frames or windows of them into one sequence; None by default."""
        return None

    def encoder_layers(self) -> Sequence[nn.Module]:
        """Return the attention modules of the encoder's layers in use, in order; by default none.

        Methods that need the encoder's attention are refused without them.
        """
        return ()

    def patches_to_tokens(self, values: Float[Tensor, "n c"], encoded: EncodedVideo) -> Float[Tensor, "T P c"]:
        """Return values of patches, in the order in which `encoder_layers` read them, on the grid of projected tokens.

        By default each token is a patch, and patches come row by row.
        """
        return values.unflatten(0, (len(encoded.times), -1))

    def pooling(self, encoded: EncodedVideo) -> Float[Tensor, "rows columns P"]:
        """Return the weight of every projected token in each pooled cell; by default tokens are not pooled."""
        return unpooled(*encoded.grid)

    def unpooled_tokens(self, encoded: EncodedVideo) -> tuple[Float[Tensor, "T P d"], tuple[int, int]]:
        """Return projected tokens before pooling, and their grid."""
        return encoded.features, encoded.grid

    def project(self, made: Compressed, method: Method, encoded: EncodedVideo | None = None) -> VideoInPrompt:
        """Return the method's tokens in the order of the prompt; extras are mixed if the encoded video is given."""
        extras, placed = ({}, made) if encoded is None else (encoded.extras, made.on_grid(encoded.grid))
        layout = layout_of(placed, extras)
        order = layout.order.to(made.tokens.device)
        tokens, own = self.with_structure(made.tokens[order], order)
        return VideoInPrompt(tokens, made, order=own, layout=layout)

    @torch.inference_mode()
    def compress(
        self, encoded: Sequence[EncodedVideo], prompts: Sequence[Prompt], request: CompressionRequest
    ) -> list[VideoInPrompt]:
        """Compress each prompt's video for its question; extras are mixed with the same coefficients."""
        return self.compress_each(encoded, prompts, request)

    def compress_each(
        self, encoded: Sequence[EncodedVideo], prompts: Sequence[Prompt], request: CompressionRequest
    ) -> list[VideoInPrompt]:
        """Do the work of `compress` in the caller's gradient mode."""
        method, done = self.method(request.method), []
        for prompt, budget in zip(prompts, one_per_prompt(request.budget, len(prompts)), strict=True):
            video = encoded[prompt.video]
            features = self.features(video, method, conditioned=prompt.question is not None)
            if request.step is None:
                made = method(with_question(features, method, prompt), question=prompt.question, budget=budget)
            else:
                made = _made_in_training(method, features, prompt.question, budget, request.step)
            done.append(self.project(self.shortened(made, method, video), method, video))
        return done

    def shortened(self, made: Compressed, method: Method, encoded: EncodedVideo) -> Compressed:
        """Return what the family itself leaves of a method's result; by default all of it."""
        return made

    def with_structure(
        self, tokens: Float[Tensor, "n d"], order: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, "v d"], Int[Tensor, "v"]]:
        """Add the structure tokens of the layout, with -1 in the order; by default there are none."""
        return tokens, order

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return the text before the tokens of each time, and the text after the last.

        By default all tokens stand together, without text.
        """
        return ["", ""]

    def rope(
        self, length: int, runs: list[tuple[int, int]], layout: TokenLayout, video: Video
    ) -> Int[Tensor, "3 L"] | None:
        """Return positions on three axes; None for families that count tokens."""
        return None

    def row(self, prompt: Prompt, placed: VideoInPrompt) -> Row:
        """Return one prompt's token ids: as many placeholders as there are tokens, between the family's texts."""
        content: ChatText = prompt.content
        layout: TokenLayout = placed.layout
        texts = self.frame_texts(layout.times, content.video)
        counts = layout.counts if len(texts) > 2 or len(layout.counts) == 1 else (sum(layout.counts),)
        counts = (*counts[:-1], counts[-1] + len(placed.tokens) - sum(counts))  # structure tokens come last
        before, after = content.text.split(self.placeholder)
        tokenized = self.tokenizer(before + self.token.join(texts) + after)["input_ids"]
        ids: list[int] = []
        runs: list[tuple[int, int]] = []
        left = iter(counts)
        for number in tokenized:
            if number == self.token_id:
                runs.append((len(ids), next(left)))
                ids.extend([number] * runs[-1][1])
            else:
                ids.append(number)
        labels = [IGNORED] * len(ids)
        for segment in content.following:
            more = self.token_ids(segment.text)
            ids.extend(more)
            labels.extend(more if segment.supervised else [IGNORED] * len(more))
        visual = torch.cat([torch.arange(start, start + count) for start, count in runs])
        positions = self.rope(len(ids), runs_of(visual), layout, content.video)
        return Row(torch.tensor(ids), visual, positions, torch.tensor(labels))

    @torch.inference_mode()
    def place(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]) -> DecoderInput:
        """Build token ids with placeholders, positions, and the visual tokens that take their place."""
        return self.place_each(prompts, videos)[0]

    def place_each(
        self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]
    ) -> tuple[DecoderInput, Int[Tensor, "B L"]]:
        """Do the work of `place` in the caller's gradient mode; also return labels for training."""
        rows = [self.row(prompt, video) for prompt, video in zip(prompts, videos, strict=True)]
        length = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), length), self._pad)
        mask = torch.zeros_like(ids)
        labels = torch.full_like(ids, IGNORED)
        for place, row in enumerate(rows):
            start = length - len(row.ids)
            ids[place, start:], mask[place, start:], labels[place, start:] = row.ids, 1, row.labels
        arguments: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if rows[0].positions is not None:
            arguments |= self._positions(rows, mask)
        arguments = {name: tensor.to(self.device) for name, tensor in arguments.items()}
        arguments["mm_encoder_outputs"] = {self.modality: self.encoder_output(videos)}
        at = tuple(row.visual + length - len(row.ids) for row in rows)
        visual = tuple((int(one[0]), len(one)) for one in at)
        return DecoderInput(arguments, length, visual, scattered=at), labels.to(self.device)

    def _positions(self, rows: Sequence[Row], mask: Int[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return positions in the text and on three axes, [4,B,L], zero where a row is padded, and token types."""
        positions = torch.zeros(4, *mask.shape, dtype=torch.long)
        kinds = torch.zeros_like(mask)
        for place, row in enumerate(rows):
            assert row.positions is not None  # a family has them for all rows or for none
            start = mask.shape[1] - len(row.ids)
            positions[0, place, start:] = torch.arange(len(row.ids))
            positions[1:, place, start:] = row.positions
            kinds[place, start + row.visual] = 2  # the number of videos among modalities
        return {"position_ids": positions, "mm_token_type_ids": kinds}

    def encoder_output(self, videos: Sequence[VideoInPrompt]) -> BaseModelOutputWithPooling:
        """Return the tokens of all prompts in the format of the model's own encoder."""
        return BaseModelOutputWithPooling(pooler_output=tuple(video.tokens for video in videos))

    @property
    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else (self.tokenizer.eos_token_id or 0)

    @torch.inference_mode()
    def relevance(self, encoded: EncodedVideo, prompt: Prompt) -> Float[Tensor, "T"]:
        """Return the cosine similarity of each frame's mean token to the question's mean embedding."""
        assert prompt.question is not None  # the prompt of a question always has one
        return frame_relevance(encoded.features.mean(1), prompt.question).float().cpu()


def _made_in_training(
    method: Method, features: VideoFeatures, question: Float[Tensor, "d"] | None, budget: Budget, step: int
) -> Compressed:
    """Compress one video with the warm-ups of a training step."""
    if not isinstance(method, FrameMethod) or not method.trained:
        raise ValueError(f"method {method.name!r} is not trained; leave the training step out")
    return Compressed.of_frames(method.mix(features, question=question, budget=budget, step=step), features)
