"""The common part of transformers' own video models: loading, prompts, compression and placing of tokens.

A family encodes a video into projected tokens on a grid, and says how they are laid out in the prompt; the model's own
`generate` takes them as `mm_encoder_outputs`, in the place of what its encoder would have computed.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.attention import EXTRAS, EncoderAttention, cached, unpooled
from aviot.backbones.base import (
    CompressionRequest,
    EncodedVideo,
    Prompt,
    StoredBackbone,
    VideoInPrompt,
    VideoShape,
    with_question,
)
from aviot.backbones.checkpoints.adapter import Adapter
from aviot.backbones.checkpoints.folder import CheckpointError
from aviot.backbones.huggingface.adapters import add_adapters, sampled_by, trained_parts
from aviot.backbones.huggingface.compiled import compile_layers, eagerly
from aviot.backbones.huggingface.loading import execution_device, load_model, read_config, upgrade_advice
from aviot.backbones.huggingface.packed_attention import use_packed_attention
from aviot.backbones.huggingface.placing import TokenPlacing
from aviot.backbones.huggingface.processing import FILTERS, Processing
from aviot.backbones.loading import LoadOptions
from aviot.budget import Budget, one_per_prompt
from aviot.methods.aviot.method import frame_relevance
from aviot.methods.base import Compressed, FrameMethod, Method
from aviot.methods.features import VideoFeatures
from aviot.video import PatchScaling, Transform, Video, read_video

DEFAULT_RATIO = 4.0


class HuggingFaceBackbone(TokenPlacing):
    """A model of transformers' own classes. Each subclass implements one family."""

    trained = "adapter"
    model_types: ClassVar[tuple[str, ...]]  # values of model_type in config.json
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

    @property
    def filter(self) -> str:
        """The name of the filter that frames are scaled with."""
        number = self.settings["resample"]
        if number not in FILTERS:
            known = ", ".join(f"{number} ({name})" for number, name in FILTERS.items())
            raise ValueError(
                f"the video processor's resample must be one of {known}, got {number!r}; copy "
                "video_preprocessor_config.json from the model's own checkpoint"
            )
        return FILTERS[number]

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

    compiled = False

    def compile_encoder(self) -> bool:
        """Compile the layers of an encoder on a GPU that packs its frames; others hardly gain."""
        if (packing := self.packing_encoder) is not None and self.device.type == "cuda":
            compile_layers(packing)
            self.compiled = True
        return self.compiled

    @abstractmethod
    def encode_one(self, video: Video, pixels: Any) -> EncodedVideo:
        """Encode one video."""

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
        with eagerly(self.compiled):
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
