"""From vision features to decoder tokens: positions, relevance, compression, projection and pooling."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.methods.aviot import Compression, Compressor, PositionEncoder, SegmentMean, UniformKeep
from aviot.methods.aviot.finite import FiniteFlags
from aviot.methods.aviot.replay import Replays
from aviot.models.configuration import AviotConfig
from aviot.models.connector import Connector
from aviot.models.grouping import select_videos
from aviot.request import CompressorName, check_compressor


@dataclass(frozen=True)
class Prepared:
    """An encoded video, or several of one length, with what does not depend on the question."""

    u: Float[Tensor, "*B T S D"]  # vision features
    x: Float[Tensor, "*B T S D"]  # with positions
    frame_means: Float[Tensor, "*B T d"] | None  # v_i, each frame's mean in the decoder's space, no gradient

    def for_prompts(self, asked: tuple[int, ...]) -> "Prepared":
        """From one a video to one a prompt: the videos at these places."""
        means = None if self.frame_means is None else select_videos(self.frame_means, asked)
        return Prepared(select_videos(self.u, asked), select_videos(self.x, asked), means)


@dataclass(frozen=True)
class VideoTokens:
    """The decoder's tokens of each prompt's video, and what has to be finite for them to mean anything."""

    tokens: Float[Tensor, "B v d"]
    finite: FiniteFlags | None

    def clone(self) -> "VideoTokens":
        """Copy the tensors, which a replayed graph overwrites."""
        return VideoTokens(self.tokens.clone(), None if self.finite is None else self.finite.clone())


class VideoPath:
    """The part of a model between its encoder and its decoder."""

    config: AviotConfig
    device: torch.device
    position: PositionEncoder
    compressor: Compressor
    question_projection: nn.Linear
    connector: Connector
    _replays: Replays

    def prepare(self, u: Float[Tensor, "*B T S D"], *, step: int | None = None, relevance: bool = True) -> Prepared:
        """What every question about an encoded video shares: positions, and the frames in the decoder's space.

        The frames are there for a question's relevance; without one, `relevance=False` leaves them out.
        """
        x = self.position(u, step=step)
        if not relevance:
            return Prepared(u, x, None)
        with torch.no_grad():
            means = self.connector.frame_means(x.flatten(0, -3)).float()
        return Prepared(u, x, means.unflatten(0, x.shape[:-2]))

    def compress(
        self,
        video: Prepared,
        question_mean: Float[Tensor, "*B d"] | None,
        *,
        ratio: float,
        compressor: CompressorName = "aviot",
        step: int | None = None,
    ) -> tuple[Float[Tensor, "*B K S D"], Compression | None]:
        """Position-aware features of a video, compressed for its question; as they are with `"none"`.

        Videos of one length can be compressed together, each for its own question.
        """
        check_compressor(compressor)
        if compressor == "none":
            return video.x, None
        if compressor == "uniform":
            out = UniformKeep(self.config.compressor)(video.x, ratio=ratio)
        elif compressor == "segment-mean":
            out = SegmentMean(self.config.compressor)(video.x, ratio=ratio)
        else:
            routes = self._question_routes(video, question_mean)
            out = self.compressor(video.x, **routes, motion=video.u, ratio=ratio, step=step)
        return out.features, out

    def idle_weights(self) -> Float[Tensor, ""]:
        """Zero, and a gradient of zero for every weight that some batches do not use.

        Without a question, or where a video is short enough as it is, parts of the compressor are not run. Training
        that is spread over processes needs the same gradients from each, in the same order: added to what comes first
        in the forward pass, this zero's gradients come last, and a weight's gradient is ready when all of it is there.
        """
        parts = (self.position, self.compressor, self.question_projection)
        weights = [weight for part in parts for weight in part.parameters() if weight.requires_grad]
        return sum((weight.flatten()[:0].sum() for weight in weights), torch.zeros((), device=self.device))

    def project(self, features: Float[Tensor, "B K S D"]) -> Float[Tensor, "B v d"]:
        """The decoder tokens of each prompt's features."""
        return self.connector(features.flatten(0, 1)).unflatten(0, (len(features), -1))

    @torch.no_grad()
    def video_tokens(
        self,
        u: Float[Tensor, "V T S D"],
        questions: Float[Tensor, "B d"] | None,
        asked: tuple[int, ...],
        *,
        ratio: float,
        compressor: CompressorName = "aviot",
    ) -> VideoTokens:
        """Do everything between features and tokens, without gradient or record; a GPU replays what comes again.

        `asked` has each prompt's video, by its place in `u`. Without a compressor there is little to launch, and a
        graph would hold every frame's tokens.
        """
        if compressor == "none":
            return self._to_tokens(asked, ratio, compressor, u, questions)
        return self._replays.run(
            partial(self._to_tokens, asked, ratio, compressor),
            {"u": u} if questions is None else {"u": u, "questions": questions},
            key=("tokens", asked, ratio, compressor),
            modules=(self.position, self.question_projection, self.compressor, self.connector),
        )

    def _to_tokens(
        self,
        asked: tuple[int, ...],
        ratio: float,
        compressor: CompressorName,
        u: Float[Tensor, "V T S D"],
        questions: Float[Tensor, "B d"] | None = None,
    ) -> VideoTokens:
        videos = self.prepare(u, relevance=compressor == "aviot" and questions is not None)
        features, made = self.compress(videos.for_prompts(asked), questions, ratio=ratio, compressor=compressor)
        return VideoTokens(self.project(features), None if made is None else made.flags())

    def _question_routes(self, video: Prepared, question_mean: Float[Tensor, "*B d"] | None) -> dict[str, Tensor]:
        """Return q_v = W_q e and the frames' relevance to the question; nothing without a question."""
        if question_mean is None:
            return {}
        if video.frame_means is None:
            raise ValueError("a question needs its video's frame means; prepare it with relevance=True")
        relevance = frame_relevance(video.frame_means, question_mean)
        return {"question": self.question_projection(question_mean), "relevance": relevance.detach()}


def frame_relevance(
    frame_means: Float[Tensor, "*B T d"], question_mean: Float[Tensor, "*B d"]
) -> Float[Tensor, "*B T"]:
    """Return rho_i = cos(v_i, e), the likeness of each projected frame's mean to the question's mean embedding.

    This is the frame term of eq:supp_segment_relevance.
    """
    return torch.cosine_similarity(frame_means, question_mean.to(frame_means)[..., None, :], dim=-1)
