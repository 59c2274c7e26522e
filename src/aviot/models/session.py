"""One video, encoded once and then asked, and compressed for what is asked, any number of times."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot import Compression
from aviot.models.answering import Report, Stopwatch, generate_text
from aviot.models.backbone import Prompts
from aviot.models.grouping import Row
from aviot.models.modeling import AviotForConditionalGeneration
from aviot.models.path import frame_relevance
from aviot.models.processing import AviotProcessor
from aviot.models.sequence import place_video
from aviot.request import CompressorName, check_mixes
from aviot.video import Video


@dataclass(frozen=True)
class Listened:
    """A video as it was compressed for the question that the compressor heard, or for none."""

    heard: str | None
    tokens: Float[Tensor, "v d"]  # as the decoder reads them
    compression: Compression


@dataclass(frozen=True)
class Reply:
    """An answer, and the milliseconds it took."""

    text: str
    milliseconds: dict[str, float]


class Session:
    """Keeps a video's features; questions and ratios may change, the vision tower runs once."""

    def __init__(
        self,
        model: AviotForConditionalGeneration,
        processor: AviotProcessor,
        video: Video,
        report: Report = lambda _: None,
    ) -> None:
        self.model, self.processor, self.video, self.report = model, processor, video, report
        watch = Stopwatch(model.device, report)
        with watch.part("encode"), torch.inference_mode():
            pixels = processor.pixels(np.asarray(video.frames)).to(model.device)
            (self.features,) = model.encode(pixels, [len(video)])
        self.encode_milliseconds = watch.spent["encode"]

    @property
    def patch_cover(self) -> float:
        """Share of a side of the frame that the patches cover; an encoder drops last pixels that fill no patch."""
        vision = self.model.config.vision_config
        return vision.image_size // vision.patch_size * vision.patch_size / vision.image_size

    def positioned(self) -> Float[Tensor, "T S D"]:
        """The features that the compressor mixes: with their positions. As large as the features, so not kept."""
        with torch.inference_mode():
            return self.model.model.prepare(self.features, relevance=False).x

    @cached_property
    def frame_means(self) -> Float[Tensor, "T d"]:
        """Every frame's mean in the decoder's space; no question changes it."""
        with torch.inference_mode():
            means = self.model.model.prepare(self.features).frame_means
        assert means is not None  # `prepare` computes them unless it is told not to
        return means

    @torch.inference_mode()
    def relevance(self, question: str) -> Float[Tensor, "T"]:
        """Return the relevance of every frame to a question, on the CPU: the signal that the compressor allocates by.

        It is defined for every method, also for those that ignore the question.
        """
        question_mean = self._row(question).question
        assert question_mean is not None  # the prompt of a question always has one
        return frame_relevance(self.frame_means, question_mean).float().cpu()

    @torch.inference_mode()
    def compress(self, heard: str | None, *, ratio: float, compressor: CompressorName = "aviot") -> Listened:
        """Compress for a question, or with every question route of the compressor off."""
        check_mixes(compressor)
        self.report("compress")
        row = self._row("-" if heard is None else heard)
        row = replace(row, question=None) if heard is None else row
        ((_, made),) = self.model.model.compress_rows(
            [row], [self.features], ratio=ratio, compressor=compressor, step=None, record=True
        )
        assert made.compression is not None  # a record was asked for
        made.compression.check()
        return Listened(heard, made.tokens, made.compression)

    @torch.inference_mode()
    def answer(self, question: str, tokens: Float[Tensor, "v d"], *, max_new_tokens: int) -> Reply:
        """What the decoder answers to a question from a video's tokens, which may have been made for another."""
        row = self._row(question)
        embeds, _ = place_video(row.embeds, row.place, tokens, None)
        self.model.check_length(len(embeds), max_new_tokens)
        watch = Stopwatch(self.model.device, self.report)
        text = generate_text(self.model, self.processor, embeds[None], max_new_tokens, watch)
        return Reply(text, {name: round(value, 1) for name, value in watch.spent.items()})

    def _row(self, question: str) -> Row:
        """A question's prompt in embeddings, with the question's mean."""
        prompt = self.processor.encode_prompt(self.processor.prompt(question, self.video))
        padded = {name: tensor.to(self.model.device) for name, tensor in self.processor.pad_prompts([prompt]).items()}
        (row,) = self.model.model.embed_rows(Prompts(**padded, video_index=torch.zeros(1, dtype=torch.long)))
        return row
