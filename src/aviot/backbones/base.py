"""The interface of a backbone: the operations of a Hugging Face video model that the rest of the package uses."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot import methods
from aviot.accounting import Backbone as DecoderShape
from aviot.auto_budget import Calibration
from aviot.backbones.checkpoints.adapter import Adapter
from aviot.backbones.checkpoints.folder import CheckpointError
from aviot.backbones.loading import LoadOptions
from aviot.budget import Budget, one_per_prompt
from aviot.engine.base import DecoderInput
from aviot.methods.aviot.finite import FiniteFlags
from aviot.methods.base import Compressed, Method
from aviot.methods.features import NO_STRUCTURE, Structure, VideoFeatures
from aviot.methods.registry import DEFAULT
from aviot.video import Frames, Scaling, Transform, Video, read_video

logger = logging.getLogger(__name__)

BENCHMARK_QUESTION = "What happens in this video, and in which order? Answer in a few words."

History = Sequence[tuple[str, str]]
"""Earlier questions and answers of a conversation."""


@dataclass(frozen=True)
class StoredBackbone:
    """The contents of a checkpoint's small files, read without its weights.

    `sampling` has the default frame rate, largest number of frames and image size for reading videos. `prompt` returns
    the text of an example prompt for a question and its span; a change in it shows a change in wording.
    """

    default_budget: Budget
    sampling: dict[str, Any]
    prompt: Callable[[str, tuple[int, int] | None], str]


@dataclass(frozen=True)
class VideoShape:
    """The decoder of a model for videos of one length and size, and the number of frames that its encoder makes."""

    decoder: DecoderShape
    frames: int


@dataclass(frozen=True)
class EncodedVideo:
    """A sampled video and its encoder features on a grid of patches, for any number of questions.

    An encoder that merges frames has fewer of them than the video; `times` are those of the encoder's frames, in
    seconds (default: the video's own). `tokens_per_frame` is the number of decoder tokens of one whole frame of the
    encoder, including structure tokens (default: the size of the grid). `extras` has tensors [T,S,d] that are mixed
    with the same coefficients as the features, by name. `structure` has the structure tokens of a compressed video.
    `cache` has tensors that were computed when a method first needed them, by name.
    """

    video: Video
    features: Float[Tensor, "T S D"]
    grid: tuple[int, int]
    tokens_per_frame: int = 0
    times: tuple[float, ...] = ()
    extras: Mapping[str, Float[Tensor, "T S d"]] = field(default_factory=dict)
    structure: Structure = NO_STRUCTURE
    cache: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows, columns = self.grid
        object.__setattr__(self, "tokens_per_frame", self.tokens_per_frame or rows * columns)
        object.__setattr__(self, "times", self.times or tuple(self.video.times))

    @property
    def tokens_before(self) -> int:
        """The number of decoder tokens without compression."""
        return len(self.times) * self.tokens_per_frame + self.structure.per_video


@dataclass(frozen=True)
class Prompt:
    """A question's prompt with a placeholder for a video; `content` is its representation in the backbone.

    `question` is the mean input embedding of the question's tokens (None: compress without a question).
    `question_tokens` are input embeddings of the question's own tokens: of its span without options, tokenized alone.
    """

    text: str
    content: Any
    question: Float[Tensor, "d"] | None
    video: int = 0  # its video's number among several encoded ones
    question_tokens: Float[Tensor, "L d"] | None = None


@dataclass(frozen=True)
class CompressionRequest:
    """A choice of budget (one for all prompts, or one per prompt), method and options for a compression.

    With `record` the result includes provenance. `step` is the training step, for methods with a warm-up. `times` are
    the frames' times in seconds, if all prompts ask about one video.
    """

    budget: Budget | float | Sequence[Budget | float]
    method: str | Method = DEFAULT
    step: int | None = None
    record: bool = True
    times: tuple[float, ...] = ()


@dataclass(frozen=True)
class VideoInPrompt:
    """The tokens of a prompt's video in the decoder, including structure tokens such as separators."""

    tokens: Float[Tensor, "v d"]
    made: Compressed | None  # None without a record
    finite: FiniteFlags | None = None  # one for all prompts compressed in one call; None with a record
    order: Int[Tensor, "v"] | None = None  # each token's index among the method's tokens; -1 for structure tokens
    layout: Any = None  # what the backbone's `place` needs besides

    def supports(self, tokens_per_frame: int) -> int:
        """Return the number of supports: whole frames' worth of tokens, or for single tokens the frames they are in."""
        if self.made is None:
            return -(-len(self.tokens) // tokens_per_frame)
        if self.made.compression is not None:
            return len(self.made) // (self.made.grid[0] * self.made.grid[1])
        return len(self.made.moments[0])


class Backbone(ABC):
    """A loaded model and its processor. Each subclass implements one family of models."""

    family: ClassVar[str]
    model: Any
    tokenizer: Any
    image_size: int | None = None  # side of the square that frames are scaled to; None if it depends on the video
    trained: ClassVar[Literal["model", "adapter"] | None] = None  # what `aviot train` writes; None: it is not trained

    @classmethod
    @abstractmethod
    def handles(cls, config: Mapping[str, Any]) -> bool:
        """Return whether a checkpoint with this config.json belongs to the family."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, device: torch.device) -> Self:
        """Load a checkpoint that `handles` accepted, in evaluation mode."""

    @classmethod
    def load_with(cls, folder: Path, device: torch.device, options: LoadOptions) -> Self:
        """Load a checkpoint in another type, over several devices, or quantised; by default only the type."""
        if options.device_map is not None or options.quantization is not None:
            raise ValueError(f"{cls.family} models are loaded whole onto one device; choose a device and a type only")
        loaded = cls.load(folder, device)
        if options.torch_dtype is not None:
            loaded.model.to(options.torch_dtype)
        return loaded

    def compile_encoder(self) -> bool:
        """Compile the encoder where that makes it faster, and return whether it was; by default it is not."""
        return False

    @classmethod
    def shape_of(cls, folder: Path, frames: int, size: tuple[int, int]) -> VideoShape:
        """Return the numbers of tokens of a video of that many frames of (height, width), without reading weights."""
        raise ValueError(f"{cls.family} does not tell its numbers of tokens without its weights")

    @classmethod
    @abstractmethod
    def wrap(cls, model: Any, processor: Any) -> Self | None:
        """Return the backbone of a loaded model; None if the model belongs to another family."""

    @classmethod
    @abstractmethod
    def stored(cls, folder: Path) -> StoredBackbone:
        """Read a checkpoint's small files, without its weights."""

    def adapt(self, folder: Path, adapter: Adapter) -> None:
        """Put an adapter's trained parts on the model; its base has been checked."""
        raise CheckpointError(f"{folder} is an adapter, and models of {self.family} take none; name a whole checkpoint")

    @property
    @abstractmethod
    def default_budget(self) -> Budget:
        """The budget of requests that do not give one."""

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of automatic budgets that lies beside the model's weights; None if there is none."""
        return Calibration.of(Path(self.name_or_path)) if self.name_or_path else None

    @property
    @abstractmethod
    def decoder(self) -> DecoderShape:
        """The decoder's shape, for counting operations."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The longest sequence, in tokens, that the decoder supports."""

    def with_thumbnails(self, largest_side: int) -> Transform:
        """Return the scaling of frames, with a thumbnail packed behind each; for families with an `image_size`."""
        if self.image_size is None:
            raise ValueError(f"{self.family} scales frames to sizes of their own; take its frames as thumbnails")
        return Scaling(self.image_size, largest_side)

    def frame_size(self, frames: int, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (height, width) that frames of a size are scaled to in a video of that many frames."""
        return size if self.image_size is None else (self.image_size, self.image_size)

    @property
    def patch_cover(self) -> float:
        """Share of a frame's side that the patches cover; an encoder may drop last pixels that do not fill a patch."""
        return 1.0

    @property
    def merged_frames(self) -> int:
        """The number of frames that the encoder merges into one."""
        return 1

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device

    @property
    def name_or_path(self) -> str:
        """The folder that the model was loaded from; empty for a model built in memory."""
        return str(getattr(self.model, "name_or_path", "") or "")

    @abstractmethod
    def read(
        self,
        source: Any,
        *,
        transform: Transform | None = None,
        reader: Callable[..., Video] = read_video,
        **sampling: Any,
    ) -> Video:
        """Sample a video; its frames are scaled for the encoder, or by `transform` if given.

        `reader` is `read_video` or a function with the same arguments, such as `read_isolated` for untrusted files.
        """

    @abstractmethod
    def pixels(self, videos: Sequence[Video]) -> Any:
        """Return the frames of videos on the device, in the encoder's input format."""

    @abstractmethod
    def encode(self, videos: Sequence[Video], pixels: Any = None) -> list[EncodedVideo]:
        """Return the encoder features of each video; pass the result of `pixels` if there is one already."""

    @property
    def frames_at_once(self) -> int | None:
        """The number of frames of the chunks that `encode` works in; None if it encodes a video as a whole.

        With a number, `encode_chunk` and `encoded_from` give the same features as `encode`.
        """
        return None

    def encode_chunk(self, frames: Frames) -> Tensor:
        """Return the features of `frames_at_once` frames of a video, or of the fewer last ones."""
        raise NotImplementedError(f"{self.family} encodes videos as a whole")

    def encoded_from(self, video: Video, chunks: Sequence[Tensor]) -> EncodedVideo:
        """Return a video with the features of all of its chunks."""
        raise NotImplementedError(f"{self.family} encodes videos as a whole")

    @abstractmethod
    def prompt(
        self, question: str, video: Video, *, history: History = (), span: tuple[int, int] | None = None
    ) -> Prompt:
        """Return the prompt of a question; `span` is the range of its characters without instructions."""

    def benchmark_prompt(self, video: Video) -> Prompt:
        """Return a prompt of usual length, for speed measurements."""
        return self.prompt(BENCHMARK_QUESTION, video)

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """The model's trained parts of methods, by name; empty if it was not trained with one."""
        return {}

    def method(self, name: str | Method) -> Method:
        """Return a method of the registry, with this model's trained parts.

        A method whose parts the model does not have is replaced by its stand-in, which needs none; the log says so
        once.
        """
        found = methods.get(name)
        if self.parts or found.stand_in is None:
            return found.bind(self.parts)
        if not self._told:
            self._told = True
            logger.warning(
                "method %s has not been trained for this %s model; %s runs instead",
                found.name,
                self.family,
                found.stand_in,
            )
        return methods.get(found.stand_in)

    _told = False  # whether the log has a warning about a stand-in

    @abstractmethod
    def features(self, encoded: EncodedVideo, method: Method, *, conditioned: bool) -> VideoFeatures:
        """Return a method's input for its point: features or projected tokens, with the extras that it needs.

        Extras that only a question needs may be left out unless the compression is `conditioned` on one.
        """

    @abstractmethod
    def project(self, made: Compressed, method: Method) -> VideoInPrompt:
        """Return the decoder tokens of a method's result."""

    def compress(
        self, encoded: Sequence[EncodedVideo], prompts: Sequence[Prompt], request: CompressionRequest
    ) -> list[VideoInPrompt]:
        """Compress each prompt's video for its question, and project the result.

        This default processes one prompt after another and keeps every record; a backbone that supports batches
        overrides it.
        """
        if request.step is not None:
            raise ValueError(f"{self.family} does not train methods; leave the training step out")
        method = self.method(request.method)
        done, features, features_for = [], None, None
        for prompt, budget in zip(prompts, one_per_prompt(request.budget, len(prompts)), strict=True):
            key = prompt.video, prompt.question is not None
            if features is None or features_for != key:  # prompts about one video usually follow each other
                features = None  # freed before the next
                features, features_for = self.features(encoded[prompt.video], method, conditioned=key[1]), key
            made = method(with_question(features, method, prompt), question=prompt.question, budget=budget)
            done.append(self.project(made, method))
        return done

    @abstractmethod
    def place(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]) -> DecoderInput:
        """Put each prompt's video in the place of its placeholder; shorter prompts are padded on the left."""

    def sources(self, encoded: EncodedVideo, method: Method) -> Float[Tensor, "T S D"]:
        """Return the features or tokens that a method mixes."""
        return self.features(encoded, self.method(method), conditioned=False).features

    @abstractmethod
    def relevance(self, encoded: EncodedVideo, prompt: Prompt) -> Float[Tensor, "T"]:
        """Return each frame's similarity to the question, on the CPU; it does not depend on the method."""

    def check_length(self, prompt: int, answer: int) -> None:
        """Refuse a prompt and an answer that are together longer than `max_length`."""
        check_length(prompt, answer, self.max_length)


def with_question(features: VideoFeatures, method: Method, prompt: Prompt) -> VideoFeatures:
    """Return a method's input with the tokens of a prompt's question, if the method needs them and there is one."""
    if "question_tokens" not in method.needs or prompt.question is None or prompt.question_tokens is None:
        return features
    return replace(features, extras={**features.extras, "question_tokens": prompt.question_tokens})


def check_length(prompt: int, answer: int, limit: int) -> None:
    """Raise ValueError if a prompt and an answer of these lengths are together longer than the limit."""
    if prompt + answer > limit:
        longest_answer = f" and the answer may have {answer:,}" if answer else ""
        raise ValueError(
            f"the prompt has {prompt:,} tokens{longest_answer}; the decoder reads {limit:,}: "
            "compress more (a higher ratio), sample fewer frames, or shorten the question or the answer"
        )
