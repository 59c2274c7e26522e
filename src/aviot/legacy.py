"""The interface of 0.1.0 around one video, on top of `aviot.session`: `Session`, `answer_question`, `compress_video`.

It is reached by the old module names `aviot.models.session` and `aviot.models.answering`, which warn.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from aviot.backbones.base import VideoInPrompt
from aviot.engine.base import Report
from aviot.methods.aviot.result import Compression
from aviot.methods.registry import DEFAULT
from aviot.request import MAX_NEW_TOKENS
from aviot.session import Answer, ConditionedVideo, VideoLM
from aviot.video import Video

__all__ = ["Answer", "Session", "answer_question", "compress_video"]


class Session:
    """One encoded video, with the calls of 0.1.0; new code opens a `VideoSession` by `VideoLM.open`."""

    def __init__(self, model: Any, processor: Any, video: Video, report: Report = lambda _: None) -> None:
        self.session = VideoLM(model, processor).open(video, report=report)
        self.model, self.processor, self.video = model, processor, video
        self.features = self.session.encoded.features
        self.encode_milliseconds = self.session.opening_milliseconds["encode"]

    def relevance(self, question: str) -> Float[Tensor, "T"]:
        """Return each frame's similarity to a question."""
        return self.session.relevance(question)

    def compress(self, question: str | None, *, ratio: float, compressor: str = DEFAULT) -> ConditionedVideo:
        """Compress for a question, or for none."""
        return self.session.compress(question, budget=ratio, method=compressor)

    def answer(self, question: str, tokens: Float[Tensor, "v d"], *, max_new_tokens: int) -> Answer:
        """Answer a question from a video's tokens."""
        read = ConditionedVideo(None, VideoInPrompt(tokens, None))
        return self.session.answer(question, read, max_new_tokens=max_new_tokens)


def answer_question(
    model: Any,
    processor: Any,
    source: Any,
    question: str,
    *,
    ratio: float | None = None,
    compressor: str = DEFAULT,
    max_new_tokens: int = MAX_NEW_TOKENS,
    **sampling: Any,
) -> Answer:
    """Answer one question about one video."""
    session = VideoLM(model, processor).open(source, **sampling)
    return session.ask(question, budget=ratio, method=compressor, max_new_tokens=max_new_tokens)


def compress_video(
    model: Any,
    processor: Any,
    source: Any,
    question: str,
    *,
    ratio: float | None = None,
    compressor: str = DEFAULT,
    **sampling: Any,
) -> tuple[Video, Compression]:
    """Read, encode and compress a video; return it and its compression, the first two of 0.1.0's four results."""
    session = VideoLM(model, processor).open(source, **sampling)
    return session.video, session.compress(question, budget=ratio, method=compressor).compression
