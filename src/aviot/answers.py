"""Results of a session: answers and compressed videos, and the file that holds a compression."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from aviot.auto_budget import PROBABILITY_DIGITS, Step
from aviot.backbones.base import VideoInPrompt
from aviot.backbones.checkpoints.shards import write_tensors
from aviot.grounding.spans import Span
from aviot.grounding.when import TimesFrom
from aviot.methods.aviot.result import Compression
from aviot.methods.base import Compressed
from aviot.methods.features import TokenMixture
from aviot.video import Video


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer, with the number of frames and tokens behind it and the time it took.

    `supports` is the number of distinct times among the decoder's tokens. `path` has the number of frames or supports
    at each stage, and `budgets` those of the stages' segments; methods without stages have one entry and none.
    `layer_tokens` has the number of visual tokens that each decoder layer read, of methods that act inside the decoder;
    `tokens_after` is then the number that was left when they had done their work. `probability` is the geometric mean
    of the probabilities of the answer's tokens. `steps` are those of an automatic budget, and `reason` why it is that
    one. `method` is the one that ran, which is another than the one asked for where that needs trained parts that the
    model does not have. `when` has the spans, in seconds, that the answer rests on, if they were asked for, and
    `when_from` whether the answer names them or its tokens come from there.
    """

    question: str
    text: str
    frames: int
    supports: int
    tokens_before: int
    tokens_after: int
    path: tuple[int, ...]
    budgets: tuple[Any, ...]
    milliseconds: dict[str, float]
    compressed: Compressed | None = None  # None without a record
    layer_tokens: tuple[int, ...] = ()
    probability: float | None = None  # None if the engine does not tell
    steps: tuple[Step, ...] = ()
    reason: str = ""
    method: str = ""
    when: tuple[Span, ...] = ()
    when_from: TimesFrom | None = None

    @property
    def tokens_read(self) -> int:
        """The number of visual tokens that the decoder read in all, with the answers that were not accepted."""
        return sum(step.tokens for step in self.steps) if self.steps else self.tokens_entering

    @property
    def tokens_entering(self) -> int:
        """The number of visual tokens that the first decoder layer read."""
        return self.layer_tokens[0] if self.layer_tokens else self.tokens_after

    @property
    def seconds(self) -> float:
        """The sum of all measured times."""
        return sum(self.milliseconds.values()) / 1000

    @cached_property
    def provenance(self) -> TokenMixture:
        """The exact mixture of sources behind each token that the method made; computed on first use.

        Of methods on encoder features those are features before projection and pooling, K x S of them.
        """
        if self.compressed is None:
            raise ValueError("this answer has no record of its compression; answer with record=True")
        return self.compressed.mixture

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        names = ("question", "text", "method", "frames", "supports", "tokens_before", "tokens_after", "path", "budgets")
        inside = {"tokens_entering": self.tokens_entering, "layer_tokens": self.layer_tokens}
        own = {name: getattr(self, name) for name in names} | (inside if self.layer_tokens else {})
        own |= {"probability": None if self.probability is None else round(self.probability, PROBABILITY_DIGITS)}
        if self.steps:
            steps = [asdict(step) for step in self.steps]
            own |= {"tokens_read": self.tokens_read, "steps": steps, "reason": self.reason}
        if self.when_from is not None:
            own |= {"when": [list(span) for span in self.when], "when_from": self.when_from}
        return own | {"milliseconds": self.milliseconds}


@dataclass(frozen=True)
class ConditionedVideo:
    """A video compressed for one conditioning question (None: unconditioned)."""

    question: str | None
    video: VideoInPrompt
    method: str = ""  # the one that ran

    @property
    def made(self) -> Compressed:
        """The method's result, with its provenance."""
        if self.video.made is None:
            raise ValueError("there is no record of how these tokens were made; compress the video again")
        return self.video.made

    @property
    def tokens(self) -> Float[Tensor, "v d"]:
        """The tokens that the decoder reads."""
        return self.video.tokens

    @property
    def compression(self) -> Compression:
        """The record of a method that mixes whole frames; raises ValueError for other methods."""
        if self.made.compression is None:
            raise ValueError("this method does not mix whole frames; read made.mixture and made.positions")
        return self.made.compression


def save_compression(path: Path, video: Video, read: ConditionedVideo) -> None:
    """Write tokens and their provenance as one safetensors file, atomically.

    Methods that mix whole frames write `features` [K,S,D] and `coefficients` [K,S,T]; others `tokens` [n,d], `indices`
    and `weights` [n,m] of their mixture, and `positions` [n,3] (seconds, row, column).
    """
    about: dict[str, Any] = {"question": read.question, "name": video.name, "duration": video.duration}
    made = read.made
    about["times"] = made.frame_times
    if made.compression is not None:
        about |= {"path": made.compression.path, "budgets": made.compression.budgets}
        coefficients = made.compression.provenance().coefficients
        tensors = {"features": made.compression.features, "coefficients": coefficients}
    else:
        mixture = made.mixture
        tensors = {"tokens": made.tokens, "positions": made.positions}
        tensors |= {"indices": mixture.indices, "weights": mixture.weights}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(path, plain, {"aviot": json.dumps(about)})
