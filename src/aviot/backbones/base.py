"""The interface of a backbone: a Hugging Face video model, as far as the rest of the package has to know it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot import methods
from aviot.accounting import Backbone as DecoderShape
from aviot.budget import Budget, one_per_prompt
from aviot.engine.base import DecoderInput
from aviot.methods.aviot.finite import FiniteFlags
from aviot.methods.base import Compressed, Method
from aviot.methods.features import VideoFeatures
from aviot.methods.registry import DEFAULT
from aviot.video import Transform, Video, read_video

BENCHMARK_QUESTION = "What happens in this video, and in which order? Answer in a few words."

History = Sequence[tuple[str, str]]
"""Earlier questions and answers of a conversation."""


@dataclass(frozen=True)
class StoredBackbone:
    """What a checkpoint's small files say, read without its weights.

    `sampling` are the frame rate, the largest number of frames and the image size that reading uses unless asked
    otherwise; `prompt` lays out an example prompt, which identifies the wording.
    """

    default_budget: Budget
    sampling: dict[str, Any]
    prompt: Callable[[str, tuple[int, int] | None], str]


@dataclass(frozen=True)
class EncodedVideo:
    """A sampled video and its encoder features, for any number of questions."""

    video: Video
    features: Float[Tensor, "T S D"]


@dataclass(frozen=True)
class Prompt:
    """A question's prompt with room for a video; `content` is the backbone's own form of it.

    `question` is the mean input embedding of the question's tokens, None where no question conditions a method.
    """

    text: str
    content: Any
    question: Float[Tensor, "d"] | None
    video: int = 0  # which of several encoded videos it asks about


@dataclass(frozen=True)
class CompressionRequest:
    """How videos are to be compressed; `budget` is one for all prompts, or one each.

    `record` keeps how the tokens were made. `step` is the training step of methods with a warm-up. `times` are the
    frames' seconds, where all prompts ask about one video.
    """

    budget: Budget | float | Sequence[Budget | float]
    method: str | Method = DEFAULT
    step: int | None = None
    record: bool = True
    times: tuple[float, ...] = ()


@dataclass(frozen=True)
class VideoInPrompt:
    """A prompt's video as the decoder reads it: its tokens, structure tokens such as separators included."""

    tokens: Float[Tensor, "v d"]
    made: Compressed | None  # None where no record was asked for
    finite: FiniteFlags | None = None  # of its whole group, where there is no record to ask
    order: Int[Tensor, "v"] | None = None  # which of the method's tokens each one is; -1 for structure tokens
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # mixed as the tokens are, such as deepstack


class Backbone(ABC):
    """A loaded model and its processor. Subclasses know one family; everything else goes through these methods."""

    family: ClassVar[str]
    model: Any
    tokenizer: Any
    image_size: int | None = None  # side of the square that frames are scaled to; None where it depends on the video

    @classmethod
    @abstractmethod
    def handles(cls, config: Mapping[str, Any]) -> bool:
        """Return whether a checkpoint with this config.json is of the family."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, device: torch.device) -> Self:
        """Load a checkpoint that `handles` accepted, ready to answer."""

    @classmethod
    @abstractmethod
    def wrap(cls, model: Any, processor: Any) -> Self | None:
        """Return the backbone of a loaded model; None if the model is not of the family."""

    @classmethod
    @abstractmethod
    def stored(cls, folder: Path) -> StoredBackbone:
        """Return what a checkpoint's small files say, without reading weights."""

    @property
    @abstractmethod
    def default_budget(self) -> Budget:
        """The budget of requests that give none."""

    @property
    @abstractmethod
    def decoder(self) -> DecoderShape:
        """The decoder's shape, for counting operations."""

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patch grid that methods mix on."""

    @property
    @abstractmethod
    def tokens_per_frame(self) -> int:
        """The visual tokens of one whole frame in the decoder, structure tokens included."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The positions that the decoder knows."""

    @property
    def patch_cover(self) -> float:
        """Share of a side of the frame that the patches cover; an encoder may drop pixels that fill no patch."""
        return 1.0

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device

    @property
    def name_or_path(self) -> str:
        """The folder that the model was loaded from; empty for one that was made in memory."""
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
        """Sample a video; its frames come as the encoder takes them, or as a transform leaves them.

        `reader` is `read_video`, or another that takes the same, such as `read_isolated` for strangers' files.
        """

    @abstractmethod
    def pixels(self, videos: Sequence[Video]) -> Any:
        """Return videos' frames on the device, in the form that the encoder takes."""

    @abstractmethod
    def encode(self, videos: Sequence[Video], pixels: Any = None) -> list[EncodedVideo]:
        """Return the encoder features of each video; `pixels` if they have been made already."""

    @abstractmethod
    def prompt(
        self, question: str, video: Video, *, history: History = (), span: tuple[int, int] | None = None
    ) -> Prompt:
        """Return the prompt of a question; `span` are the characters of it that ask, without instructions."""

    def benchmark_prompt(self, video: Video) -> Prompt:
        """Return a prompt of usual length, for measuring speed."""
        return self.prompt(BENCHMARK_QUESTION, video)

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Trained parts of methods that the model holds, by name."""
        return {}

    def method(self, name: str | Method) -> Method:
        """Return a method of the registry, with this model's trained parts where it has some."""
        return methods.get(name).bind(self.parts)

    @abstractmethod
    def features(self, encoded: EncodedVideo, method: Method, *, conditioned: bool) -> VideoFeatures:
        """Return what a method reads, at its point: features or projected tokens, with the extras that it needs.

        Extras that serve a question alone may be left out unless the compression is `conditioned` on one.
        """

    @abstractmethod
    def project(self, made: Compressed, method: Method) -> VideoInPrompt:
        """Return what a method made as the decoder reads it."""

    def compress(
        self, encoded: Sequence[EncodedVideo], prompts: Sequence[Prompt], request: CompressionRequest
    ) -> list[VideoInPrompt]:
        """Compress each prompt's video for its question, and project what the method made of it.

        One prompt after the other; a backbone that can batch them overrides this.
        """
        method = self.method(request.method)
        done = []
        for prompt, budget in zip(prompts, one_per_prompt(request.budget, len(prompts)), strict=True):
            features = self.features(encoded[prompt.video], method, conditioned=prompt.question is not None)
            video = self.project(method(features, question=prompt.question, budget=budget), method)
            done.append(video if request.record else replace(video, made=None))
        return done

    @abstractmethod
    def place(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]) -> DecoderInput:
        """Put each prompt's video where its placeholder is; shorter prompts are padded on the left."""

    def sources(self, encoded: EncodedVideo, method: Method) -> Float[Tensor, "T S D"]:
        """Return the tokens or features whose mixture a method's tokens are."""
        return self.features(encoded, self.method(method), conditioned=False).features

    @abstractmethod
    def relevance(self, encoded: EncodedVideo, prompt: Prompt) -> Float[Tensor, "T"]:
        """Return each frame's similarity to the question, on the CPU; defined whatever the method."""

    def check_length(self, prompt: int, answer: int) -> None:
        """Refuse a prompt that leaves no room for the answer among the positions that the decoder knows."""
        if prompt + answer > self.max_length:
            asked = f" and the answer may have {answer:,}" if answer else ""
            raise ValueError(
                f"the prompt has {prompt:,} tokens{asked}; the decoder reads {self.max_length:,}: "
                "compress more (a higher ratio), sample fewer frames, or shorten the question or the answer"
            )
