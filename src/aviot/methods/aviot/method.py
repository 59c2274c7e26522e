"""AVIOT as a method: the paper's compressor, with the question representations that a model was trained with."""

from collections.abc import Hashable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.budget import Budget
from aviot.methods.aviot.compressor import Compressor
from aviot.methods.aviot.result import Compression
from aviot.methods.base import FrameMethod, Method
from aviot.methods.features import VideoFeatures

PARTS = ("compressor", "question_projection")
"""The names of the trained parts in a model."""


class AviotMethod(FrameMethod):
    """AVIOT: optimal transport of frames onto supports at three granularities, conditioned on the question.

    It needs a model that was trained with it; `bind` takes the model's parts. On a model that was not, a backbone runs
    training-free AVIOT instead.
    """

    name = "aviot"
    title = "AVIOT"
    trained = True
    stand_in = "aviot-free"
    uses_question = True
    needs = frozenset({"frame_means"})

    def __init__(self, compressor: Compressor | None = None, question_projection: nn.Module | None = None) -> None:
        self.compressor, self.question_projection = compressor, question_projection

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """The compressor's constants too: training and `variant` change them."""
        return *super().replay_key, None if self.compressor is None else self.compressor.config

    def bind(self, parts: Mapping[str, nn.Module]) -> Method:
        """Return the method with a model's compressor and question projection."""
        missing = [name for name in PARTS if name not in parts]
        if missing:
            raise ValueError(
                f"method {self.name!r} needs a model that was trained with it, and this one has no "
                f"{' and no '.join(missing)}; choose another method, or train it for this model first"
            )
        compressor = parts["compressor"]
        assert isinstance(compressor, Compressor)
        return AviotMethod(compressor, parts["question_projection"])

    def mix(
        self,
        video: VideoFeatures,
        *,
        question: Float[Tensor, "*B d"] | None,
        budget: Budget,
        step: int | None = None,
    ) -> Compression:
        """Compress one video or a batch of them, each for its own question."""
        if self.compressor is None:
            raise ValueError(
                f"method {self.name!r} has no weights by itself; use a VideoLM of a checkpoint that was trained with "
                "it, or aviot.Compressor for the compressor alone"
            )
        return self.compressor.on_grid(video.grid)(
            video.features,
            **self._question_inputs(video, question),
            motion=video.extras.get("before_positions"),
            supports=budget.frames(video.frames, video.tokens_per_frame),
            step=step,
        )

    def _question_inputs(self, video: VideoFeatures, question: Float[Tensor, "*B d"] | None) -> dict[str, Tensor]:
        """Return q_v = W_q e and the frames' relevance to the question; empty without a question."""
        if question is None:
            return {}
        if "frame_means" not in video.extras:
            raise ValueError("a question needs its video's frame means; prepare it with relevance=True")
        assert self.question_projection is not None  # `bind` sets both parts
        relevance = frame_relevance(video.extras["frame_means"], question)
        return {"question": self.question_projection(question), "relevance": relevance.detach()}


def frame_relevance(
    frame_means: Float[Tensor, "*B T d"], question_mean: Float[Tensor, "*B d"]
) -> Float[Tensor, "*B T"]:
    """Return rho_i = cos(v_i, e), the similarity of each projected frame's mean to the question's mean embedding.

    This is the frame term of eq:supp_segment_relevance.
    """
    return torch.cosine_similarity(frame_means, question_mean.to(frame_means)[..., None, :], dim=-1)
