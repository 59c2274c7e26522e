"""The model's forward pass on rows that share their prefix and the position of their video."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Required, TypedDict, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from aviot.backbones.llava_video.features_to_tokens import PositionedVideo
from aviot.backbones.llava_video.model import AviotModel
from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.budget import Budget
from aviot.methods import Compressed
from aviot.methods.aviot import Compression
from aviot.methods.baselines import RandomTokens
from aviot.methods.registry import DEFAULT, UNCOMPRESSED
from aviot.models import AviotForConditionalGeneration
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.batches import ConversationBatch
from aviot_lab.demo_model.masks import question_means
from aviot_lab.world import RenderPlan, draw

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels in order of preference. cuDNN's compiles a plan for every new shape, and most steps have one."""

WHOLE = Budget(keep=1.0)
ROUNDED = 64  # tokens: sequences are padded to a multiple, so that fewer shapes are new


@dataclass(frozen=True, eq=False)
class Answers:
    """Losses and predictions of a batch."""

    language: Float[Tensor, ""]
    agrees: Bool[Tensor, "B L-1"]  # each token after a row's first is predicted right or not supervised
    x: Float[Tensor, "V T S D"]  # the videos' features with positions
    tokens: Float[Tensor, "B v d"]  # visual tokens of each row
    compression: Compression | None  # None: uncompressed

    @property
    def right(self) -> Bool[Tensor, "B"]:
        """Rows whose tokens are all predicted right."""
        return self.agrees.all(1)

    @cached_property
    def transport(self) -> Float[Tensor, ""]:
        """Mean objective of the compressor, computed on first use; zero without a compressor."""
        return self.language.new_zeros(()) if self.compression is None else self.compression.loss.mean()


def encode(model: AviotForConditionalGeneration, plans: Sequence[RenderPlan], videos: int) -> Float[Tensor, "V T S D"]:
    """Draw videos of one length and encode them."""
    pixels = draw(plans, model.device).movedim(-1, 1)
    return model.encode(pixels, [len(pixels)])[0].unflatten(0, (videos, -1))


class PromptOptions(TypedDict, total=False):
    """The options of `compressed_prompts`."""

    ratio: Required[float | None]
    compressor: str
    question_of: Sequence[int] | None
    conditioned: bool


def answer(
    model: AviotForConditionalGeneration,
    u: Float[Tensor, "V T S D"],
    batch: ConversationBatch,
    **how: Unpack[PromptOptions],
) -> Answers:
    """Answer a batch's questions about encoded videos, compressed as `compressed_prompts` does, with teacher forcing.

    A row is right exactly if greedy decoding would generate its answer.
    """
    ready = compressed_prompts(model, u, batch, **how)
    language, agrees = read_answers(model, ready.sequences, batch)
    return Answers(language, agrees, ready.x, ready.sequences.tokens, ready.compression)


@dataclass(frozen=True, eq=False)
class Sequences:
    """The decoder's input in three parts: text before the video, its tokens, and what follows."""

    before: Float[Tensor, "B l d"]
    tokens: Float[Tensor, "B v d"]
    after: Float[Tensor, "B L d"]

    @property
    def end(self) -> int:
        """The number of tokens."""
        return self.before.shape[1] + self.tokens.shape[1] + self.after.shape[1]

    @property
    def length(self) -> int:
        """The number of tokens with padding at the end, where no token attends to it."""
        return self.end + -self.end % ROUNDED

    def padded(self) -> Float[Tensor, "B length d"]:
        """Return the whole input."""
        whole = torch.cat((self.before, self.tokens, self.after), 1)
        return F.pad(whole, (0, 0, 0, self.length - self.end))


@dataclass(frozen=True, eq=False)
class CompressedPrompts:
    """The decoder's input for a batch of questions, the videos' features with positions, and the compression if any."""

    sequences: Sequences
    x: Float[Tensor, "V T S D"]
    compression: Compression | None


def compressed_prompts(
    model: AviotForConditionalGeneration,
    u: Float[Tensor, "V T S D"],
    batch: ConversationBatch,
    *,
    ratio: float | None,
    compressor: str = DEFAULT,
    question_of: Sequence[int] | None = None,
    conditioned: bool = True,
) -> CompressedPrompts:
    """Compress encoded videos for a batch's questions and put them into the prompts.

    `ratio=None` leaves videos uncompressed, but for the tokens that the batch drops (`batch.kept`). The compressor is
    conditioned on each row's own question, or on that of the row whose index `question_of` has; with
    `conditioned=False`, on none.
    """
    path, device = model.model, u.device
    embed = model.get_input_embeddings()
    ids = to_device(batch.ids, device)
    after = embed(ids)
    before = embed(to_device(batch.prefix, device)).expand(len(ids), -1, -1)
    method = path.method(UNCOMPRESSED if ratio is None else compressor)
    uses_question = method.uses_question and conditioned
    questions = question_means(after.detach(), to_device(batch.question_mask, device)) if uses_question else None
    if questions is not None and question_of is not None:
        questions = questions[list(question_of)]
    videos = path.prepare(u, relevance=uses_question)
    made, kept = None, batch.kept
    if isinstance(method, RandomTokens):
        kept = method(path.frame_tokens(videos).only(0), budget=ratio or WHOLE).mixture.indices[:, 0]
    if kept is not None:
        tokens = tokens_left(path, videos, to_device(kept, device))[to_device(batch.video, device)]
    else:
        asked = videos.for_prompts(tuple(batch.video.tolist()))
        made = path.compress(asked, questions, budget=ratio or WHOLE, method=method)
        tokens = path.project(made.features)
    sequences = Sequences(before.to(tokens.dtype), tokens, after.to(tokens.dtype))
    return CompressedPrompts(sequences, videos.x, made if method.compresses else None)


def read_answers(
    model: Any, sequences: Sequences, batch: ConversationBatch, positions: Int[Tensor, "3 length"] | None = None
) -> tuple[Float[Tensor, ""], Bool[Tensor, "B L-1"]]:
    """Run the decoder; return the language loss, and where its predictions of what follows the video are right.

    `positions` are those on three axes, of decoders that do not count.
    """
    device = sequences.tokens.device
    labels, weights = to_device(batch.labels, device), to_device(batch.weights, device)[:, 1:]
    logits = next_logits(model, sequences, positions)
    targets = labels[:, 1:]
    each = F.cross_entropy(logits.movedim(-1, 1), targets, ignore_index=IGNORED, reduction="none")
    language = (each * weights).sum() / weights.sum()
    return language, (logits.argmax(-1) == targets) | (targets == IGNORED)


def next_logits(
    model: Any, sequences: Sequences, positions: Int[Tensor, "3 length"] | None = None
) -> Float[Tensor, "B L-1 words"]:
    """Return what the decoder predicts after each token behind the video but the last; positions as `read_answers`."""
    causal = {"full_attention": None}  # padding comes last; to check that, transformers would synchronise
    axes = {} if positions is None else {"position_ids": positions[:, None].expand(-1, len(sequences.tokens), -1)}
    with sdpa_kernel(ATTENTION):
        hidden = model.model.language_model(
            inputs_embeds=sequences.padded(), attention_mask=causal, use_cache=False, **axes
        ).last_hidden_state
    start, end = sequences.end - sequences.after.shape[1], sequences.end
    return model.lm_head(hidden[:, start:end]).float()[:, :-1]


def tokens_left(path: AviotModel, videos: PositionedVideo, kept: Int[Tensor, "n"]) -> Float[Tensor, "V v d"]:
    """Return the tokens that are left if all but `kept` are dropped, in the order and with the separators of inference.

    `kept` has flat indices, the same for all videos.
    """
    every = path.frame_tokens(videos)
    _, order = path.with_separators(Compressed.kept(every.only(0), kept))
    tokens = every.features.flatten(1, 2)[:, kept[order.clamp_min(0)]]
    return torch.where((order < 0)[:, None], path.connector.row_separator.to(tokens), tokens)
