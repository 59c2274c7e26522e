"""One question about one video, from file to answer, with what it took."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from aviot.compressor import Compression
from aviot.models.modeling import AviotForConditionalGeneration
from aviot.models.path import CompressorName
from aviot.models.processing import AviotProcessor
from aviot.models.shards import write_tensors
from aviot.video import Video

Report = Callable[[str], None]


@dataclass(frozen=True)
class Answer:
    """The answer, and what was done for it."""

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


@torch.inference_mode()
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
    """Read, encode and compress; returns the sampled video, the compression and the merged prompt's embeddings."""
    watch = Stopwatch(model.device, report)
    with watch.part("decode"):
        video = processor.read(source, **sampling)
        batch = processor(video, question).to(model.device)
    with watch.part("encode"):
        encoded = model.encode(batch["pixel_values"], [len(video)])
    with watch.part("compress"):
        merged, compressions = model.merge_prompts(
            batch["input_ids"],
            encoded=encoded,
            question_span=batch["question_span"],
            ratio=ratio,
            compressor=compressor,
        )
        if compressions[0] is not None:
            compressions[0].check()
    return video, compressions[0], merged.embeds, watch


@torch.inference_mode()
def answer_question(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    source: Any,
    question: str,
    *,
    ratio: float | None = None,
    compressor: CompressorName = "aviot",
    max_new_tokens: int = 64,
    report: Report = lambda _: None,
    **sampling: Any,
) -> Answer:
    """Answer one question about one video."""
    video, compression, embeds, watch = compress_video(
        model, processor, source, question, ratio=ratio, compressor=compressor, report=report, **sampling
    )
    text = generate_text(model, processor, embeds, max_new_tokens, watch)
    supports = len(video) if compression is None else compression.features.shape[0]
    per_support = model.model.connector.tokens_per_support
    return Answer(
        text=text,
        frames=len(video),
        supports=supports,
        tokens_before=len(video) * per_support,
        tokens_after=supports * per_support,
        path=(len(video),) if compression is None else compression.path,
        budgets=() if compression is None else compression.budgets,
        milliseconds={name: round(value, 1) for name, value in watch.spent.items()},
    )


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
