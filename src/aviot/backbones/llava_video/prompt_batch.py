"""Batches of prompts: embedded, grouped by what can be compressed together, and merged with their videos' tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from aviot.budget import Budget
from aviot.methods.aviot.finite import FiniteFlags

IGNORED = -100  # the label of positions that are not supervised

# Features in one call of the compressor where no gradient is recorded: four videos of 224 frames of 27 x 27 patches of
# 1152 channels. In the solver's float32 they take 3 GB, and its temporaries come on top.
ELEMENTS_AT_ONCE = 4 * 224 * 27 * 27 * 1152


@dataclass(frozen=True)
class Prompts:
    """Token prompts and the videos they ask about, one placeholder each."""

    input_ids: Int[Tensor, "B L"]
    attention_mask: Int[Tensor, "B L"]
    question_span: Int[Tensor, "B *R 2"]  # the question's first token and one past its last; R of them in R turns
    video_index: Int[Tensor, "B"]  # the number of each prompt's video among the encoded ones
    labels: Int[Tensor, "B L"] | None = None


@dataclass(frozen=True)
class PromptInputs:
    """The arguments of `forward` and `generate` that describe prompts; those that may be left out are None."""

    input_ids: Int[Tensor, "B L"] | None
    question_span: Int[Tensor, "B *R 2"] | None
    attention_mask: Int[Tensor, "B L"] | None = None
    video_index: Int[Tensor, "B"] | None = None
    labels: Int[Tensor, "B L"] | None = None

    def __post_init__(self) -> None:
        if self.input_ids is None or self.question_span is None:
            raise ValueError("a video needs input_ids and question_span; build them with the processor")

    def complete(self, videos: int) -> Prompts:
        """Return the prompts of a batch with this many encoded videos; missing arguments get their defaults."""
        ids, span, mask, index = self.input_ids, self.question_span, self.attention_mask, self.video_index
        assert ids is not None  # both are checked in __post_init__
        assert span is not None
        if mask is None:
            mask = torch.ones_like(ids)
        if index is None:
            if videos not in (1, len(ids)):
                raise ValueError(
                    f"give one video, one per prompt, or video_index; got {videos} videos and {len(ids)} prompts"
                )
            index = torch.arange(len(ids), device=ids.device).clamp_max(videos - 1)
        return Prompts(ids, mask, span, index, self.labels)


@dataclass(frozen=True)
class EmbeddedPrompt:
    """One prompt's input embeddings, without padding; the placeholder's own embedding means nothing."""

    embeds: Float[Tensor, "l d"]
    placeholder: int  # its position among the tokens
    labels: Int[Tensor, "l"] | None
    video: int  # its video's number among the encoded ones
    question: Float[Tensor, "d"] | None  # mean embedding of the question's tokens, without gradient

    def conditioned_on(self, question: Float[Tensor, "d"] | None, video: int) -> "EmbeddedPrompt":
        """Return the same prompt for another video, compressed for another question or (None) unconditioned."""
        return replace(self, question=question, video=video)


@dataclass(frozen=True)
class PromptGroup:
    """Prompts that share a call of the compressor: videos of one length, one budget, all with a question or none."""

    prompts: tuple[int, ...]  # their numbers in the batch
    budget: Budget
    videos: tuple[int, ...]  # the numbers of their videos, each once
    video_of_prompt: tuple[int, ...]  # for each prompt, the index of its video in `videos`
    questions: Float[Tensor, "B d"] | None

    @classmethod
    def of(cls, numbers: Sequence[int], prompts: Sequence[EmbeddedPrompt], budget: Budget) -> "PromptGroup":
        """Return the group of the prompts with these numbers."""
        videos = tuple(dict.fromkeys(prompts[number].video for number in numbers))
        questions = [question for number in numbers if (question := prompts[number].question) is not None]
        return cls(
            prompts=tuple(numbers),
            budget=budget,
            videos=videos,
            video_of_prompt=tuple(videos.index(prompts[number].video) for number in numbers),
            questions=torch.stack(questions) if questions else None,
        )


def group_prompts(
    prompts: Sequence[EmbeddedPrompt], encoded: Sequence[Float[Tensor, "T S D"]], budgets: Sequence[Budget]
) -> Iterator[PromptGroup]:
    """Yield groups of prompts with the same number of frames, budget, and presence of a question, sorted by video.

    Without a gradient a group has at most `ELEMENTS_AT_ONCE` features, or is one prompt. With one, all activations are
    stored for the backward pass however prompts are grouped.
    """

    def kind(number: int) -> tuple[int, bool, tuple[float, ...]]:
        return len(encoded[prompts[number].video]), prompts[number].question is not None, budgets[number].sort_key

    order = sorted(range(len(prompts)), key=lambda number: (*kind(number), prompts[number].video))
    for _, members in groupby(order, kind):
        numbers = list(members)
        elements = encoded[prompts[numbers[0]].video].numel()
        size = len(numbers) if torch.is_grad_enabled() else max(1, ELEMENTS_AT_ONCE // elements)
        for first in range(0, len(numbers), size):
            yield PromptGroup.of(numbers[first : first + size], prompts, budgets[numbers[0]])


def stack_videos(videos: Sequence[Float[Tensor, "T S D"]]) -> Float[Tensor, "V T S D"]:
    """Stack videos of one length; the result is a view if they lie at even distances in one storage (see `encode`)."""
    first = videos[0]
    if len(videos) == 1:
        return first[None]
    step = videos[1].storage_offset() - first.storage_offset()
    layout = {(video.untyped_storage().data_ptr(), video.shape, video.stride(), video.dtype) for video in videos}
    evenly = all(video.storage_offset() == first.storage_offset() + i * step for i, video in enumerate(videos))
    if len(layout) == 1 and evenly and step > 0 and not any(video.requires_grad for video in videos):
        return first.as_strided((len(videos), *first.shape), (step, *first.stride()))
    return torch.stack(tuple(videos))


def select_videos(stacked: Float[Tensor, "V ..."], indices: tuple[int, ...]) -> Float[Tensor, "B ..."]:
    """Return the entries of stacked videos at these indices; a view if that is all of them in order, or only one."""
    if len(stacked) == 1:
        return stacked.expand(len(indices), *stacked.shape[1:])
    if indices == tuple(range(len(stacked))):
        return stacked
    each = stacked.unbind()  # one gradient for all of them; indexing would give every entry one as large as `stacked`
    return torch.stack([each[index] for index in indices])


@dataclass(frozen=True)
class MergedPrompts:
    """Input embeddings with the videos' tokens in place, padded on the left to one length."""

    embeds: Float[Tensor, "B L d"]
    attention_mask: Int[Tensor, "B L"]
    labels: Int[Tensor, "B L"] | None
    finite: tuple[FiniteFlags, ...] = ()  # flags of the compression that have not been read yet


def find_placeholder(is_placeholder: Bool[Tensor, "l"]) -> int:
    """Return the position of the single placeholder; waits for the device, so call it before long work is queued."""
    positions = is_placeholder.nonzero().flatten().tolist()
    if len(positions) != 1:
        raise ValueError(
            f"each prompt must hold exactly one video placeholder, got {len(positions)}; build it with the processor"
        )
    return positions[0]


def place_video(
    embeds: Float[Tensor, "l d"],
    placeholder: int,
    video: Float[Tensor, "v d"],
    labels: Int[Tensor, "l"] | None,
) -> tuple[Float[Tensor, "L d"], Int[Tensor, "L"] | None]:
    """Replace the placeholder at this position by the video's tokens, which are never supervised."""
    merged = torch.cat((embeds[:placeholder], video.to(embeds), embeds[placeholder + 1 :]))
    if labels is None:
        return merged, None
    ignored = labels.new_full((len(video),), IGNORED)
    return merged, torch.cat((labels[:placeholder], ignored, labels[placeholder + 1 :]))


def pad_left(sequences: Sequence[Float[Tensor, "l d"]], labels: Sequence[Int[Tensor, "l"] | None]) -> MergedPrompts:
    """Pad sequences to one length on the left, since generation needs their ends aligned."""
    longest = max(len(sequence) for sequence in sequences)
    gaps = [longest - len(sequence) for sequence in sequences]
    embeds = sequences[0][None]
    if len(sequences) > 1:
        embeds = torch.stack([F.pad(sequence, (0, 0, gap, 0)) for sequence, gap in zip(sequences, gaps, strict=True)])
    positions = torch.arange(longest, device=embeds.device)
    mask = torch.stack([(positions >= gap).long() for gap in gaps])
    padded = [
        F.pad(label, (gap, 0), value=IGNORED) for label, gap in zip(labels, gaps, strict=True) if label is not None
    ]
    return MergedPrompts(embeds, mask, torch.stack(padded) if padded else None)


def positions_in(attention_mask: Int[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Return each token's position among those that are not padding."""
    return (attention_mask.cumsum(-1) - 1).clamp_min(0)
