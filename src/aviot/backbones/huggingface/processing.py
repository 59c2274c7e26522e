"""A family's processor without torchvision: its tokenizer, chat template and the numbers of its preprocessing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from aviot.backbones.base import History
from aviot.backbones.checkpoints.folder import CheckpointError, read_json, reason_of
from aviot.backbones.huggingface.chat import messages_of
from aviot.video import Video

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers of resampling filters
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")  # one of them holds the vocabulary
DEFAULT_FPS, DEFAULT_MAX_FRAMES = 2.0, 224

CLIP_PIXELS: dict[str, Any] = {
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
"""Default settings of pixels in families whose encoder takes CLIP's normalisation."""

HALF_PIXELS: dict[str, Any] = CLIP_PIXELS | {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
"""Default settings of pixels in families whose encoder takes values from -1 to 1."""


@dataclass(frozen=True)
class Processing:
    """A tokenizer, a chat template, and the settings of a processor and of its video processor."""

    tokenizer: PreTrainedTokenizerBase
    template: str | None
    settings: Mapping[str, Any]  # of the processor
    video: Mapping[str, Any]  # of the video processor
    sampled: Mapping[str, Any] = field(default_factory=dict)  # rate and frames of videos that an adapter was trained on

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Read a checkpoint's small files, those of older layouts too, in the order of the family's own processor."""
        if not any((folder / name).is_file() for name in TOKENIZERS):
            raise CheckpointError(
                f"{folder} has no tokenizer; copy tokenizer.json and tokenizer_config.json from the original checkpoint"
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise CheckpointError(
                f"{folder}: its tokenizer cannot be loaded ({reason_of(error)}); copy tokenizer.json and "
                "tokenizer_config.json from the original checkpoint"
            ) from error
        settings = _read(folder, "processor_config.json")
        video = (
            settings.get("video_processor")
            or _read(folder, "video_preprocessor_config.json")
            or _read(folder, "preprocessor_config.json")
        )
        template = settings.get("chat_template") or _read(folder, "chat_template.json").get("chat_template")
        return cls(tokenizer, _default(template or tokenizer.chat_template), settings, _current(video))

    @classmethod
    def from_processor(cls, processor: Any) -> Self:
        """Take the parts of a loaded processor; a tokenizer alone stands for the family's default settings."""
        if isinstance(processor, PreTrainedTokenizerBase):
            return cls(processor, _default(processor.chat_template), {}, {})
        tokenizer = getattr(processor, "tokenizer", None)
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise ValueError(
                f"a processor with a tokenizer is needed, got {type(processor).__name__}; pass the AutoProcessor or "
                "the AutoTokenizer of the model's own checkpoint"
            )
        own = getattr(processor, "video_processor", None)
        video = {} if own is None else own.to_dict()
        settings = {name: value for name, value in vars(processor).items() if isinstance(value, (int, str))}
        template = getattr(processor, "chat_template", None) or tokenizer.chat_template
        return cls(tokenizer, _default(template), settings, _current(video))

    def sampling(self) -> dict[str, Any]:
        """Return the default frame rate and largest number of frames."""
        fps = self.video.get("fps") or DEFAULT_FPS
        most = self.video.get("max_frames") or DEFAULT_MAX_FRAMES
        return {"fps": float(fps), "max_frames": min(int(most), DEFAULT_MAX_FRAMES), **self.sampled}

    def chat(self, question: str, history: History, template: str) -> str:
        """Return the text of a conversation about a video, up to the answer, by a chat template."""
        questions = [*(asked for asked, _ in history), question]
        return self.render(template, messages_of(questions, [answer for _, answer in history]), True)

    def render(self, template: str, messages: list[dict[str, Any]], prompt: bool) -> str:
        """Return messages as text by a chat template; a prompt ends with the start of an answer."""
        text = self.tokenizer.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=prompt, tokenize=False
        )
        assert isinstance(text, str)  # not tokenized
        return text


def _read(folder: Path, name: str) -> dict[str, Any]:
    return read_json(folder / name) if (folder / name).is_file() else {}


def _default(template: Any) -> str | None:
    """Return a chat template; of several by name, the one for conversations."""
    return template.get("default") if isinstance(template, dict) else template


def _current(video: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under today's names: early checkpoints of SmolVLM2 have those of sampling apart."""
    sampling = video.get("video_sampling") or {}
    names = {"fps": "fps", "max_frames": "max_frames", "video_size": "size"}
    renamed = {names[name]: value for name, value in sampling.items() if name in names}
    return {**video, **renamed, **({"size": video["size"]} if video.get("size") else {})}


def pixel_limits(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return least and most pixels; those of early checkpoints come before `size`, as in the families' processors."""
    size = settings["size"]
    least = settings.get("min_pixels") or size.get("shortest_edge")
    most = settings.get("max_pixels") or size.get("longest_edge")
    if not least or not most:
        raise ValueError(
            f"the video processor's size must have shortest_edge and longest_edge, got {dict(size)}; copy "
            "video_preprocessor_config.json from the model's own checkpoint"
        )
    return int(least), int(most)


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of the encoder's input, and the factor that bytes are multiplied by."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: float
    normalise: bool = True

    @classmethod
    def of(cls, video: Mapping[str, Any]) -> Self:
        """Read the settings of a video processor; what is turned off has no effect."""
        rescale = video["rescale_factor"] if video["do_rescale"] else 1.0
        return cls(tuple(video["image_mean"]), tuple(video["image_std"]), rescale, bool(video["do_normalize"]))

    def __call__(self, frames: UInt8[Tensor, "T H W 3"]) -> Float[Tensor, "T 3 H W"]:
        """Return the encoder's input: (x - mean / factor) / (std / factor), in float32.

        Its channels stay last in memory, so that what an encoder makes of patches has its channels last, too: other
        layouts make every sum of its layers slow on a GPU.
        """
        pixels = frames.permute(0, 3, 1, 2).float()
        if not self.normalise:
            return pixels.mul_(self.factor)

        def by_channel(values: tuple[float, ...]) -> Tensor:
            return torch.tensor(values, device=pixels.device)[:, None, None] * (1.0 / self.factor)

        return pixels.sub_(by_channel(self.mean)).div_(by_channel(self.std))


def frames_of(video: Video, factor: int, device: torch.device) -> UInt8[Tensor, "T H W 3"]:
    """Return a video's frames on the device; they must have been scaled to multiples of `factor`."""
    frames = torch.from_numpy(np.ascontiguousarray(np.asarray(video.frames)))
    if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[1] % factor or frames.shape[2] % factor:
        raise ValueError(
            f"frames must be uint8 [T,H,W,3] with sides that are multiples of {factor}, got {frames.dtype} "
            f"{tuple(frames.shape)}; give VideoLM.open the file or array itself, it scales the frames"
        )
    return frames.to(device)


def in_patches(pixels: Float[Tensor, "T 3 H W"], patch: int, merge: int, temporal: int) -> Float[Tensor, "n p"]:
    """Return patches in blocks of merge x merge, each with `temporal` frames; the last frame is repeated if needed."""
    missing = -len(pixels) % temporal
    if missing:
        pixels = torch.cat((pixels, pixels[-1:].expand(missing, -1, -1, -1)))
    frames, channels, height, width = pixels.shape
    blocks = height // patch // merge, width // patch // merge
    split = pixels.view(frames // temporal, temporal, channels, blocks[0], merge, patch, blocks[1], merge, patch)
    return split.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(-1, channels * temporal * patch * patch)


def merged_times(times: tuple[float, ...], temporal: int) -> tuple[float, ...]:
    """Return the times of groups of `temporal` frames, each the mean of its first and last; the last is repeated."""
    padded = times + times[-1:] * (-len(times) % temporal)
    return tuple((padded[i] + padded[i + temporal - 1]) / 2 for i in range(0, len(padded), temporal))
