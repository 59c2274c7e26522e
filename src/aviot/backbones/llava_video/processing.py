"""The processor: turns videos and questions into tensors for the model."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BatchFeature, ProcessorMixin

from aviot.backbones.checkpoints.config_fields import exactly, known_fields, number, whole
from aviot.backbones.checkpoints.folder import ORIGIN, CheckpointError, read_json, reason_of, resolve_folder
from aviot.backbones.checkpoints.foreign_code import refuse_trust
from aviot.backbones.checkpoints.shards import has_weights, read_shards
from aviot.backbones.llava_video.auxiliary_files import is_tokenizers_error, load_tokenizer
from aviot.backbones.llava_video.checkpoint import check_sizes, read_checkpoint_folder
from aviot.backbones.llava_video.configuration import VIDEO_PLACEHOLDER
from aviot.backbones.llava_video.prompt import (
    ChatPrompt,
    chat_conversation,
    chat_prompt,
    check_turns,
    refuse_special_tokens,
)
from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.request import check_question
from aviot.utils.files import atomic_folder
from aviot.utils.values import require_positive, require_whole
from aviot.video import Scaling, Transform, Video, read_video

SETTINGS_FILE = "processor_config.json"
SETTINGS = ("image_size", "fps", "max_frames")
# Limits on a checkpoint's sampling, which decides how much memory a video takes: 4,096 frames of 384 x 384 pixels are
# 1.8 GB. Callers may ask for more.
MOST_FPS, MOST_FRAMES = 240.0, 4096
_RULES = {"fps": number(0, MOST_FPS, above=True), "max_frames": whole(1, MOST_FRAMES)}
History = Sequence[tuple[str, str]]  # earlier questions and answers


@dataclass(frozen=True)
class TokenPrompt:
    """One prompt as token ids, and the range of its question's tokens."""

    ids: list[int]
    question: tuple[int, int]


@dataclass(frozen=True)
class TokenConversation:
    """A conversation as token ids, its labels (`IGNORED` where not supervised), and the ranges of its questions."""

    ids: list[int]
    labels: list[int]
    questions: tuple[tuple[int, int], ...]


class AviotProcessor(ProcessorMixin):
    """Reads and samples videos, scales their frames, and builds prompts with the range of their question.

    `image_size` is the encoder's; `fps` and `max_frames` are the defaults of calls that do not give them.
    """

    attributes = ("tokenizer",)
    tokenizer_class = "AutoTokenizer"

    def __init__(
        self,
        tokenizer: Any,
        image_size: int = 384,
        fps: float = 2.0,
        max_frames: int = 224,
        chat_template: str | None = None,
    ) -> None:
        super().__init__(tokenizer, chat_template=chat_template)
        self.image_size = image_size
        self.fps = fps
        self.max_frames = max_frames
        require_whole(self, "image_size", "max_frames")
        require_positive(self, "fps")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> "AviotProcessor":
        """Load the processor of a checkpoint: ours, a published AVIOT one, or LLaVA-Video's.

        No code of a checkpoint is run; a name on the hub is fetched only with `download=True`.
        """
        refuse_trust(kwargs)
        origin = {name: kwargs.pop(name) for name in ORIGIN if name in kwargs}
        given = {name: kwargs.pop(name) for name in SETTINGS if name in kwargs}
        folder = resolve_folder(pretrained_model_name_or_path, **origin)
        checkpoint = read_checkpoint_folder(folder)
        if has_weights(folder):
            check_sizes(checkpoint, read_shards(folder))
        config = checkpoint.config
        tokenizer = load_tokenizer(folder, config, kwargs)
        side = config.vision_config.image_size
        stored: dict[str, Any] = {"image_size": side}
        path = folder / SETTINGS_FILE
        if path.exists():
            try:
                stored |= known_fields(read_json(path), {**_RULES, "image_size": exactly(side)})
            except CheckpointError:
                raise
            except ValueError as error:
                raise CheckpointError(f"{path}: {error}") from error
        return cls(tokenizer, **stored | given)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> list[str]:
        """Write tokenizer and settings beside a model."""
        folder = Path(save_directory)
        if kwargs.get("push_to_hub"):
            kwargs.setdefault("repo_id", folder.name)
        settings = {"processor_class": type(self).__name__} | {name: getattr(self, name) for name in SETTINGS}
        with atomic_folder(folder) as temporary:
            written = self.tokenizer.save_pretrained(temporary, **kwargs)
            (temporary / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        return [*(str(folder / Path(path).relative_to(temporary)) for path in written), str(folder / SETTINGS_FILE)]

    def __call__(
        self,
        videos: Any,
        questions: str | Sequence[str],
        *,
        histories: Sequence[History] | None = None,
        fps: float | None = None,
        max_frames: int | None = None,
        frames: int | None = None,
        source_fps: float | None = None,
        padding_side: str = "left",
        **kwargs: Any,
    ) -> BatchFeature:
        """Return tensors for `generate`, with one prompt per question.

        `videos` are paths, folders of images, arrays or `Video`s from `read`: one for all questions (it is then encoded
        once) or one per question; `source_fps` is the frame rate of arrays and image folders. `histories` has the
        earlier questions and answers of each question's conversation.
        """
        if kwargs:
            raise TypeError(f"unknown arguments {', '.join(sorted(kwargs))}; see AviotProcessor.__call__")
        questions = [questions] if isinstance(questions, str) else list(questions)
        sources = list(videos) if isinstance(videos, list | tuple) else [videos]
        if not questions:
            raise ValueError("questions is empty; ask at least one")
        if len(sources) not in (1, len(questions)):
            raise ValueError(
                f"give one video, or one per question: got {len(sources)} videos and {len(questions)} questions"
            )
        sampling: dict[str, Any] = {"fps": fps, "max_frames": max_frames, "frames": frames, "source_fps": source_fps}
        read = [source if isinstance(source, Video) else self.read(source, **sampling) for source in sources]
        index = [min(i, len(read) - 1) for i in range(len(questions))]
        turns = [()] * len(questions) if histories is None else [_turns(history) for history in histories]
        if len(turns) != len(questions):
            raise ValueError(f"give one history per question; got {len(turns)} and {len(questions)} questions")
        prompts = [
            self.encode_prompt(self.prompt(question, read[video], history))
            for question, video, history in zip(questions, index, turns, strict=True)
        ]
        return self._collate(prompts, read, index, padding_side)

    def read(
        self,
        source: Any,
        *,
        transform: Transform | None = None,
        reader: Callable[..., Video] = read_video,
        **sampling: Any,
    ) -> Video:
        """Sample a video; its frames are scaled to the encoder's size, or by `transform` if given.

        `reader` is `read_video` or a function with the same arguments, such as `read_isolated` for untrusted files.
        """
        chosen = {"fps": self.fps, "max_frames": self.max_frames} | {k: v for k, v in sampling.items() if v is not None}
        return reader(source, transform=transform or Scaling(self.image_size), **chosen)

    def with_thumbnails(self, largest_side: int) -> Scaling:
        """Return the scaling of frames, with a thumbnail packed behind each."""
        return Scaling(self.image_size, largest_side)

    def prompt(
        self, question: str, video: Video, history: History = (), span: tuple[int, int] | None = None
    ) -> ChatPrompt:
        """Return the chat prompt of a question about a video; `span` is the question's range without instructions."""
        check_question(question)
        refuse_special_tokens("the question", question, self.tokenizer.all_special_tokens)
        return chat_prompt(question, video.duration, video.times, history, span)

    def encode_prompt(self, prompt: ChatPrompt) -> TokenPrompt:
        """Return the token ids of a prompt; the question's tokens are those whose text overlaps its range."""
        before, _ = self._encode(prompt.before)
        after, (first, end) = self._encode(prompt.after, prompt.question)
        shift = len(before) + 1
        return TokenPrompt([*before, VIDEO_PLACEHOLDER, *after], (shift + first, shift + end))

    def encode_conversation(
        self, turns: History, duration: float, times: Sequence[float], system: str | None = None
    ) -> TokenConversation:
        """Encode questions and answers about one video for training; answers and the ends of turns are supervised.

        Token ids are those that `encode_prompt` returns for each question in turn; `system` replaces the text of the
        system turn.
        """
        check_turns(turns, self.tokenizer.all_special_tokens)
        if system is not None:
            refuse_special_tokens("the system text", system, self.tokenizer.all_special_tokens)
        conversation = chat_conversation(turns, duration, times, system)
        before, _ = self._encode(conversation.before)
        ids = [*before, VIDEO_PLACEHOLDER]
        labels = [IGNORED] * len(ids)
        questions = []
        for segment in conversation.segments:
            tokens, (first, end) = self._encode(segment.text, segment.question or (0, 0))
            if segment.question is not None:
                questions.append((len(ids) + first, len(ids) + end))
            ids += tokens
            labels += tokens if segment.supervised else [IGNORED] * len(tokens)
        return TokenConversation(ids, labels, tuple(questions))

    def _encode(self, text: str, marked: tuple[int, int] = (0, 0)) -> tuple[list[int], tuple[int, int]]:
        """Return token ids, and the range of those whose text overlaps the marked characters."""
        try:
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        except BaseException as error:
            if not is_tokenizers_error(error):
                raise
            raise CheckpointError(f"the checkpoint's tokenizer cannot encode the text ({reason_of(error)})") from error
        low, high = marked
        inside = [i for i, (start, end) in enumerate(encoded["offset_mapping"]) if start < high and end > low]
        return encoded["input_ids"], (inside[0], inside[-1] + 1) if inside else (0, 0)

    def pixels(self, frames: np.ndarray) -> Tensor:
        """Return uint8 frames [T,H,W,3] in the model's layout, uint8 [T,3,H,W]; the model normalises them in chunks."""
        return as_pixels(frames)

    def scale(self, frame: np.ndarray) -> np.ndarray:
        """Scale a frame to the encoder's square by bicubic interpolation; its aspect ratio is not preserved."""
        return Scaling(self.image_size)(frame)

    def pad_prompts(self, prompts: Sequence[TokenPrompt], padding_side: str = "left") -> dict[str, Tensor]:
        """Pad token prompts to one length; return the arguments of `generate` that do not describe videos."""
        longest = max(len(prompt.ids) for prompt in prompts)
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.tokenizer.eos_token_id
        ids, mask, spans = [], [], []
        for prompt in prompts:
            gap = longest - len(prompt.ids)
            shift = gap if padding_side == "left" else 0
            padding, ones = [pad] * gap, [1] * len(prompt.ids)
            ids.append(padding + prompt.ids if shift else prompt.ids + padding)
            mask.append([0] * gap + ones if shift else ones + [0] * gap)
            spans.append([prompt.question[0] + shift, prompt.question[1] + shift])
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "question_span": torch.tensor(spans),
        }

    def _collate(
        self, prompts: list[TokenPrompt], videos: list[Video], index: list[int], padding_side: str
    ) -> BatchFeature:
        return BatchFeature(
            {
                **self.pad_prompts(prompts, padding_side),
                "pixel_values": torch.cat([self.pixels(np.asarray(video.frames)) for video in videos]),
                "frame_counts": torch.tensor([len(video) for video in videos]),
                "video_index": torch.tensor(index),
            }
        )


def _turns(history: History) -> History:
    """Return a conversation's earlier turns; refuse anything but pairs of text."""
    turns = [history] if isinstance(history, str) else list(history)
    if any(isinstance(turn, str) or len(turn) != 2 or not all(isinstance(t, str) for t in turn) for turn in turns):
        raise ValueError(f"each history must be a list of (question, answer) pairs, got {history!r}")
    return turns


def as_pixels(frames: np.ndarray) -> Tensor:
    """Return uint8 frames [T,H,W,3] in the model's layout, uint8 [T,3,H,W]."""
    return torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2)
