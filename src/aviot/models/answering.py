"""Questions about one video, from file to answers, with what each took."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from aviot.methods.aviot import Compression
from aviot.models.modeling import AviotForConditionalGeneration
from aviot.models.processing import AviotProcessor
from aviot.models.shards import write_tensors
from aviot.request import MAX_NEW_TOKENS, CompressorName, Request
from aviot.video import Video

Report = Callable[[str], None]


@dataclass(frozen=True)
class Answer:
    """The answer, and what was done for it."""

    question: str
    text: str
    frames: int
    supports: int
    tokens_before: int
    tokens_after: int
    path: tuple[int, ...]
    budgets: tuple[Any, ...]
    milliseconds: dict[str, float]


@dataclass
class Stopwatch:
    """Milliseconds of named parts, with the device's work counted where it was asked for."""

    device: torch.device
    report: Report
    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a block and say that it has begun."""
        self.report(name)
        start = self.now()
        yield
        self.spent[name] = 1000 * (self.now() - start)

    def now(self) -> float:
        """Seconds, after the device has finished what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class _FirstToken(LogitsProcessor):
    """Notes when the first logits are there, which is when the prefill is over."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.at = now, 0.0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.at = self.at or self.now()
        return scores


@dataclass(frozen=True)
class EncodedVideo:
    """A sampled video and its vision features, for any number of questions."""

    video: Video
    features: Sequence[Float[Tensor, "T S D"]]


@dataclass(frozen=True)
class CompressedPrompt:
    """A video compressed for one question, in the place where the decoder reads it."""

    compression: Compression | None  # None where nothing is compressed
    embeds: Float[Tensor, "1 L d"]


@torch.inference_mode()
def encode_video(
    model: AviotForConditionalGeneration, processor: AviotProcessor, source: Any, watch: Stopwatch, **sampling: Any
) -> EncodedVideo:
    """Read and encode a video, once for all questions."""
    with watch.part("decode"):
        video = processor.read(source, **sampling)
        pixels = processor.pixels(np.asarray(video.frames)).to(model.device)
    with watch.part("encode"):
        return EncodedVideo(video, model.encode(pixels, [len(video)]))


@torch.inference_mode()
def compress_prompt(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    encoded: EncodedVideo,
    question: str,
    watch: Stopwatch,
    *,
    ratio: float | None = None,
    compressor: CompressorName = "aviot",
) -> CompressedPrompt:
    """Compress an encoded video for a question and merge it into the question's prompt."""
    with watch.part("compress"):
        prompt = processor.encode_prompt(processor.prompt(question, encoded.video))
        padded = {name: tensor.to(model.device) for name, tensor in processor.pad_prompts([prompt]).items()}
        merged, (compression,) = model.merge_prompts(
            padded["input_ids"],
            question_span=padded["question_span"],
            encoded=encoded.features,
            ratio=ratio,
            compressor=compressor,
        )
        if compression is not None:
            compression.check()
    return CompressedPrompt(compression, merged.embeds)


def compress_video(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    source: Any,
    question: str,
    *,
    ratio: float | None = None,
    compressor: CompressorName = "aviot",
    report: Report = lambda _: None,
    **sampling: Any,
) -> tuple[Video, Compression | None, Tensor, Stopwatch]:
    """Read, encode and compress; return the sampled video, the compression and the merged prompt's embeddings."""
    watch = Stopwatch(model.device, report)
    encoded = encode_video(model, processor, source, watch, **sampling)
    made = compress_prompt(model, processor, encoded, question, watch, ratio=ratio, compressor=compressor)
    return encoded.video, made.compression, made.embeds, watch


def answer_question(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    source: Any,
    question: str,
    *,
    ratio: float | None = None,
    compressor: CompressorName = "aviot",
    max_new_tokens: int = MAX_NEW_TOKENS,
    report: Report = lambda _: None,
    **sampling: Any,
) -> Answer:
    """Answer one question about one video."""
    watch = Stopwatch(model.device, report)
    encoded = encode_video(model, processor, source, watch, **sampling)
    return answer_encoded(
        model,
        processor,
        encoded,
        question,
        watch,
        ratio=ratio,
        compressor=compressor,
        max_new_tokens=max_new_tokens,
    )


@torch.inference_mode()
def answer_encoded(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    encoded: EncodedVideo,
    question: str,
    watch: Stopwatch,
    *,
    ratio: float | None = None,
    compressor: CompressorName = "aviot",
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> Answer:
    """Answer one question about a video that has been encoded; `watch` may hold the time that this took."""
    made = compress_prompt(model, processor, encoded, question, watch, ratio=ratio, compressor=compressor)
    compression, video = made.compression, encoded.video
    model.check_length(made.embeds.shape[1], max_new_tokens)
    text = generate_text(model, processor, made.embeds, max_new_tokens, watch)
    supports = len(video) if compression is None else compression.features.shape[0]
    per_support = model.model.connector.tokens_per_support
    return Answer(
        question=question,
        text=text,
        frames=len(video),
        supports=supports,
        tokens_before=len(video) * per_support,
        tokens_after=supports * per_support,
        path=(len(video),) if compression is None else compression.path,
        budgets=() if compression is None else compression.budgets,
        milliseconds={name: round(value, 1) for name, value in watch.spent.items()},
    )


def answer_request(
    model: AviotForConditionalGeneration, processor: AviotProcessor, request: Request, report: Report
) -> tuple[EncodedVideo, list[Answer]]:
    """Answer every question of a request from one encoding; the time that this took stands with the first answer."""
    watch = Stopwatch(model.device, report)
    encoded = encode_video(model, processor, request.video, watch, **request.sampling)
    answers = []
    for question in request.questions:
        answers.append(
            answer_encoded(
                model,
                processor,
                encoded,
                question,
                watch,
                ratio=request.ratio,
                compressor=request.compressor,  # type: ignore[arg-type]
                max_new_tokens=request.max_new_tokens,
            )
        )
        watch = Stopwatch(model.device, report)
    return encoded, answers


def generate_text(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    embeds: Float[Tensor, "1 L d"],
    max_new_tokens: int,
    watch: Stopwatch,
) -> str:
    """The greedy answer to one merged prompt, its prefill and the rest timed apart."""
    first = _FirstToken(watch.now)
    watch.report("generate")
    start = watch.now()
    mask = torch.ones(embeds.shape[:2], dtype=torch.long, device=embeds.device)
    tokens = model.generate(
        inputs_embeds=embeds,
        attention_mask=mask,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        logits_processor=LogitsProcessorList([first]),
    )
    watch.spent |= {"prefill": 1000 * (first.at - start), "generate": 1000 * (watch.now() - first.at)}
    return processor.tokenizer.decode(tokens[0], skip_special_tokens=True).strip()


def save_compression(path: Path, video: Video, compression: Compression, question: str) -> None:
    """Features and provenance in one safetensors file, written whole or not at all."""
    told = {
        "question": question,
        "name": video.name,
        "duration": video.duration,
        "times": video.times,
        "path": compression.path,
        "budgets": compression.budgets,
    }
    tensors = {
        "features": compression.features.detach().cpu(),
        "coefficients": compression.provenance().coefficients.cpu(),
    }
    write_tensors(path, tensors, {"aviot": json.dumps(told)})
