"""From vision features to decoder tokens: positions, relevance, compression, projection and pooling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot import methods
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.connector import Connector
from aviot.backbones.llava_video.prompt_batch import select_videos
from aviot.budget import Budget
from aviot.methods import Compressed, FrameMethod, Method, VideoFeatures
from aviot.methods.aviot import Compression, Compressor, PositionEncoder
from aviot.methods.aviot.finite import FiniteFlags
from aviot.methods.aviot.numerics import idle
from aviot.methods.aviot.replay import Replays
from aviot.methods.features import Structure
from aviot.methods.registry import DEFAULT

# One separator after each frame that has tokens left. After every row that has some, as an uncompressed video has them,
# they would be half of the tokens at a tenth, and the bundled demo model answers no better (docs/methods.md).
STRUCTURE = Structure(per_frame=1)


@dataclass(frozen=True)
class PositionedVideo:
    """One encoded video, or several of one length, with all tensors that do not depend on the question.

    `u` and `x` are the paper's letters for vision features before and after positions are added.
    """

    u: Float[Tensor, "*B T S D"]
    x: Float[Tensor, "*B T S D"]
    frame_means: Float[Tensor, "*B T d"] | None  # v_i, each frame's mean in the decoder's space, without gradient

    def for_prompts(self, video_of_prompt: tuple[int, ...]) -> "PositionedVideo":
        """Return one video per prompt, by their indices among these videos."""
        means = None if self.frame_means is None else select_videos(self.frame_means, video_of_prompt)
        return PositionedVideo(select_videos(self.u, video_of_prompt), select_videos(self.x, video_of_prompt), means)

    def batch_of_one(self) -> "PositionedVideo":
        """Return one video with a leading axis."""
        means = None if self.frame_means is None else self.frame_means[None]
        return PositionedVideo(self.u[None], self.x[None], means)

    def only(self, index: int) -> "PositionedVideo":
        """Return one video of several."""
        means = None if self.frame_means is None else self.frame_means[index]
        return PositionedVideo(self.u[index], self.x[index], means)


@dataclass(frozen=True)
class VideoTokens:
    """The decoder tokens of each prompt's video, and flags that tell whether the compression was finite."""

    tokens: Float[Tensor, "B v d"]
    finite: FiniteFlags | None

    def clone(self) -> "VideoTokens":
        """Copy the tensors, which a replayed graph overwrites."""
        return VideoTokens(self.tokens.clone(), None if self.finite is None else self.finite.clone())


class FeaturesToTokens:
    """Mixin for the part of a model between its encoder and its decoder: vision features in, decoder tokens out."""

    config: AviotConfig
    device: torch.device
    position: PositionEncoder
    compressor: Compressor
    question_projection: nn.Linear
    connector: Connector
    _replays: Replays

    def prepare(
        self, u: Float[Tensor, "*B T S D"], *, step: int | None = None, relevance: bool = True
    ) -> PositionedVideo:
        """Return all that questions about an encoded video share: positions and, for relevance, the frames' means.

        `relevance=False` leaves the means out; they serve compression for a question alone.
        """
        x = self.position(u, step=step)
        if not relevance:
            return PositionedVideo(u, x, None)
        with torch.no_grad():
            means = self.connector.frame_means(x.flatten(0, -3)).float()
        return PositionedVideo(u, x, means.unflatten(0, x.shape[:-2]))

    def method(self, name: str | Method) -> Method:
        """Return a method of the registry, with this model's trained parts if it has any."""
        return methods.get(name).bind(self.parts)

    @property
    def parts(self) -> dict[str, nn.Module]:
        """AVIOT's trained parts."""
        return {"compressor": self.compressor, "question_projection": self.question_projection}

    def features_of(self, video: PositionedVideo, times: Sequence[float] = ()) -> VideoFeatures:
        """Return position-aware features in the form that methods take."""
        extras = {"before_positions": video.u}
        if video.frame_means is not None:
            extras["frame_means"] = video.frame_means
        per_frame = self.connector.tokens_per_support
        return VideoFeatures(video.x, self.connector.grid, tuple(times), per_frame, extras)

    def compress(
        self,
        video: PositionedVideo,
        question_mean: Float[Tensor, "*B d"] | None,
        *,
        budget: Budget | float,
        method: str | Method = DEFAULT,
        step: int | None = None,
        times: Sequence[float] = (),
    ) -> Compression:
        """Mix whole frames of a video's position-aware features for its question.

        Videos of one length can be compressed together, each for its own question; `times` are those of one video.
        """
        found = self.method(method)
        if not isinstance(found, FrameMethod):
            raise ValueError(f"method {found.name!r} acts on {found.point}, not on whole frames; ask by a VideoLM")
        question = question_mean if found.uses_question else None
        return found.mix(self.features_of(video, times), question=question, budget=Budget.of(budget), step=step)

    def frame_tokens(self, video: PositionedVideo, times: Sequence[float] = ()) -> VideoFeatures:
        """Return every frame's projected tokens on the pooled grid, without row separators."""
        rows, columns = self.connector.pooled
        tokens = self.project(video.x).unflatten(1, (-1, rows, columns + 1))[..., :columns, :].flatten(2, 3)
        return VideoFeatures(
            tokens, (rows, columns), tuple(times), self.connector.tokens_per_support, structure=STRUCTURE
        )

    def unpooled_tokens(self, video: PositionedVideo, times: Sequence[float] = ()) -> VideoFeatures:
        """Return every frame's projected tokens before pooling, and the weights of the pooling."""
        tokens = self.connector.unpooled(video.x.flatten(0, 1)).unflatten(0, video.x.shape[:2])
        extras = {"pooling": self.connector.pooling.to(tokens.device).expand(len(tokens), -1, -1, -1)}
        return VideoFeatures(
            tokens, self.connector.grid, tuple(times), self.connector.tokens_per_support, extras, STRUCTURE
        )

    def with_separators(self, made: Compressed) -> tuple[Float[Tensor, "v d"], Int[Tensor, "v"]]:
        """Return a method's tokens in reading order with separators, and each one's index.

        A merged token stands in the frame and row that are nearest to its mean position. A separator follows the last
        token of every frame that has some left; of a video with all its tokens, the last of every row. Its index is -1.
        """
        made = made.on_grid(self.connector.pooled)
        frame, (row, column) = made.nearest_frame, made.cells.unbind(1)
        row = row.round()
        by_position = column.argsort(stable=True)
        by_position = by_position[row[by_position].argsort(stable=True)]
        by_position = by_position[frame[by_position].argsort(stable=True)]
        frame, row = frame[by_position], row[by_position]
        ends = torch.ones(len(made), dtype=torch.bool, device=row.device)
        ends[:-1] = frame[1:] != frame[:-1]
        if len(made) == len(made.frame_times) * math.prod(self.connector.pooled):
            ends[:-1] |= row[1:] != row[:-1]
        order = torch.full((len(made) + int(ends.sum()),), -1, device=row.device)
        order[torch.arange(len(made), device=row.device) + ends.cumsum(0) - ends.long()] = by_position
        tokens = self.connector.row_separator.to(made.tokens).repeat(len(order), 1)
        tokens[order >= 0] = made.tokens[by_position]
        return tokens, order

    def idle_weights(self) -> Float[Tensor, ""]:
        """Return zero, with a zero gradient for every weight that some batches do not use.

        Without a question, or for a video that is short enough already, parts of the compressor are not run, but
        distributed training needs the same gradients from each rank, in the same order. This zero is added to the first
        result of the forward pass, so its gradients come last, when the weights' other gradients are complete.
        """
        parts = (self.position, self.compressor, self.question_projection)
        return idle((weight for part in parts for weight in part.parameters()), self.device)

    def project(self, features: Float[Tensor, "B K S D"]) -> Float[Tensor, "B v d"]:
        """Return the decoder tokens of each prompt's features."""
        return self.connector(features.flatten(0, 1)).unflatten(0, (len(features), -1))

    @torch.no_grad()
    def video_tokens(
        self,
        u: Float[Tensor, "V T S D"],
        questions: Float[Tensor, "B d"] | None,
        video_of_prompt: tuple[int, ...],
        *,
        budget: Budget | float,
        method: str | Method = DEFAULT,
    ) -> VideoTokens:
        """Turn features into tokens without gradient or record; on a GPU, shapes that recur are replayed as a graph.

        `video_of_prompt` has the index in `u` of each prompt's video.
        """
        found, limit = self.method(method), Budget.of(budget)
        inputs = {"u": u} if questions is None else {"u": u, "questions": questions}
        work = partial(self._to_tokens, video_of_prompt, limit, found)
        if not found.replayable:
            return work(**inputs)
        return self._replays.run(
            work,
            inputs,
            key=("tokens", video_of_prompt, limit, *found.replay_key),
            modules=(self.position, self.question_projection, self.compressor, self.connector),
        )

    def _to_tokens(
        self,
        video_of_prompt: tuple[int, ...],
        budget: Budget,
        method: Method,
        u: Float[Tensor, "V T S D"],
        questions: Float[Tensor, "B d"] | None = None,
    ) -> VideoTokens:
        videos = self.prepare(u, relevance=wants_frame_means(method, questions))
        made = self.compress(videos.for_prompts(video_of_prompt), questions, budget=budget, method=method)
        return VideoTokens(self.project(made.features), made.flags())


def wants_frame_means(method: Method, questions: Tensor | None) -> bool:
    """Return whether a method compares frames with these questions."""
    return questions is not None and "frame_means" in method.needs
