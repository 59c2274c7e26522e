"""One step's losses: the model's own forward pass on rows that share their beginning and their video's place."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from aviot.backbones.llava_video.sequence import IGNORED
from aviot.budget import Budget
from aviot.methods.aviot import Compression
from aviot.methods.registry import DEFAULT, UNCOMPRESSED
from aviot.models import AviotForConditionalGeneration
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.lessons import Lesson
from aviot_lab.demo_model.relevance import question_means
from aviot_lab.world import Plan, draw

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which makes a plan for every shape that is new to it: here nearly every step has one."""

WHOLE = Budget(keep=1.0)
ROUNDED = 64  # tokens: sequences are as long or a multiple of it, so that fewer shapes are new


@dataclass(frozen=True, eq=False)
class Answers:
    """Losses of a batch, and what would have been said."""

    language: Float[Tensor, ""]
    agrees: Bool[Tensor, "B L-1"]  # each token after a row's first: it would be said, or is not supervised
    x: Float[Tensor, "V T S D"]  # the videos' features with positions
    tokens: Float[Tensor, "B v d"]  # what the decoder read of each row's video
    compression: Compression | None  # None where all frames were read

    @property
    def right(self) -> Bool[Tensor, "B"]:
        """Which rows were answered right to the last token."""
        return self.agrees.all(1)

    @cached_property
    def transport(self) -> Float[Tensor, ""]:
        """The compressor's objective in the mean, worked out when it is asked for; zero without a compressor."""
        return self.language.new_zeros(()) if self.compression is None else self.compression.loss.mean()


def encode(model: AviotForConditionalGeneration, plans: Sequence[Plan], videos: int) -> Float[Tensor, "V T S D"]:
    """Draw videos of one length and encode them."""
    pixels = draw(plans, model.device).movedim(-1, 1)
    return model.encode(pixels, [len(pixels)])[0].unflatten(0, (videos, -1))


def answer(
    model: AviotForConditionalGeneration,
    u: Float[Tensor, "V T S D"],
    lesson: Lesson,
    *,
    ratio: float | None,
    compressor: str = DEFAULT,
    hears: Sequence[int] | None = None,
    ask: bool = True,
) -> Answers:
    """Answer a lesson's questions about encoded videos, each given its right answer up to the token it is at.

    So a row is right if answering greedily would say exactly its answer. `ratio=None` reads all frames. The
    compressor hears each row's own question, or that of the row that `hears` names; with `ask=False`, none.
    """
    path, device = model.model, u.device
    embed = model.get_input_embeddings()
    ids, labels = to_device(lesson.ids, device), to_device(lesson.labels, device)
    after = embed(ids)
    before = embed(to_device(lesson.before, device)).expand(len(ids), -1, -1)
    method = path.method(UNCOMPRESSED if ratio is None else compressor)
    asks = method.uses_question and ask
    questions = question_means(after.detach(), to_device(lesson.asks, device)) if asks else None
    if questions is not None and hears is not None:
        questions = questions[list(hears)]
    videos = path.prepare(u, relevance=asks)
    asked = videos.for_prompts(tuple(lesson.video.tolist()))
    made = path.compress(asked, questions, budget=ratio or WHOLE, method=method)
    tokens = path.project(made.features)
    whole = torch.cat((before.to(tokens.dtype), tokens, after.to(tokens.dtype)), 1)
    start, end = whole.shape[1] - ids.shape[1], whole.shape[1]
    whole = F.pad(whole, (0, 0, 0, -end % ROUNDED))  # at the end, where nothing sees it
    causal = {"full_attention": None}  # padding comes last; left to find that out, transformers waits for the GPU
    with sdpa_kernel(ATTENTION):
        hidden = path.language_model(inputs_embeds=whole, attention_mask=causal, use_cache=False).last_hidden_state
    said = model.lm_head(hidden[:, start:end]).float()[:, :-1]
    goal = labels[:, 1:]
    weights = to_device(lesson.weights, device)[:, 1:]
    each = F.cross_entropy(said.movedim(-1, 1), goal, ignore_index=IGNORED, reduction="none")
    language = (each * weights).sum() / weights.sum()
    agrees = (said.argmax(-1) == goal) | (goal == IGNORED)
    return Answers(language, agrees, videos.x, tokens, made if method.compresses else None)
