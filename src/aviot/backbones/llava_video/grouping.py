"""Which prompts are compressed together: those whose videos have the same number of frames, with one budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.budget import Budget

# Features a call of the compressor takes where no gradient is recorded: four videos of 224 frames of 27 x 27 patches of
# 1152 channels. They are 3 GB in the float32 they are solved in, with the solve's own temporaries beside them.
ELEMENTS_AT_ONCE = 4 * 224 * 27 * 27 * 1152


@dataclass(frozen=True)
class Row:
    """One prompt without its padding."""

    embeds: Float[Tensor, "l d"]
    place: int  # of the video among its tokens
    labels: Int[Tensor, "l"] | None
    video: int  # which of the encoded ones it asks about
    question: Float[Tensor, "d"] | None  # mean embedding of the question's tokens, no gradient

    def conditioned_on(self, question: Float[Tensor, "d"] | None, video: int) -> "Row":
        """Return the same prompt for a video that is compressed for another question, or for none."""
        return replace(self, question=question, video=video)


@dataclass(frozen=True)
class Group:
    """Prompts that share a call of the compressor: videos of one length, one budget, all with a question or none."""

    rows: tuple[int, ...]  # places among the prompts
    budget: Budget
    videos: tuple[int, ...]  # those asked about, each once
    asked: tuple[int, ...]  # for each row, the place of its video among `videos`
    questions: Float[Tensor, "B d"] | None

    @classmethod
    def of(cls, numbers: Sequence[int], rows: Sequence[Row], budget: Budget) -> "Group":
        """The group of the rows with these numbers."""
        videos = tuple(dict.fromkeys(rows[number].video for number in numbers))
        questions = [question for number in numbers if (question := rows[number].question) is not None]
        return cls(
            rows=tuple(numbers),
            budget=budget,
            videos=videos,
            asked=tuple(videos.index(rows[number].video) for number in numbers),
            questions=torch.stack(questions) if questions else None,
        )


def select_videos(of_videos: Float[Tensor, "V ..."], asked: tuple[int, ...]) -> Float[Tensor, "B ..."]:
    """What belongs to the videos at these places; not copied if they are all of them in order, or there is just one."""
    if len(of_videos) == 1:
        return of_videos.expand(len(asked), *of_videos.shape[1:])
    if asked == tuple(range(len(of_videos))):
        return of_videos
    each = of_videos.unbind()  # whose gradients come back in one piece; those of indexing would be as large as all each
    return torch.stack([each[place] for place in asked])


def group_rows(
    rows: Sequence[Row], encoded: Sequence[Float[Tensor, "T S D"]], budgets: Sequence[Budget]
) -> Iterator[Group]:
    """Rows grouped by frames, question or none, and budget, neighbours asking about the same video.

    Without a gradient a group has at most `ELEMENTS_AT_ONCE` features, or is one prompt. With one, everything is kept
    for the way back, however it is grouped.
    """

    def kind(number: int) -> tuple[int, bool, tuple[float, ...]]:
        return len(encoded[rows[number].video]), rows[number].question is not None, budgets[number].sort_key

    order = sorted(range(len(rows)), key=lambda number: (*kind(number), rows[number].video))
    for _, members in groupby(order, kind):
        numbers = list(members)
        elements = encoded[rows[numbers[0]].video].numel()
        size = len(numbers) if torch.is_grad_enabled() else max(1, ELEMENTS_AT_ONCE // elements)
        for first in range(0, len(numbers), size):
            yield Group.of(numbers[first : first + size], rows, budgets[numbers[0]])


def stack_videos(videos: Sequence[Float[Tensor, "T S D"]]) -> Float[Tensor, "V T S D"]:
    """Videos of one length in one tensor; a view of them where they lie evenly in one, as `encode` leaves them."""
    first = videos[0]
    if len(videos) == 1:
        return first[None]
    step = videos[1].storage_offset() - first.storage_offset()
    layout = {(video.untyped_storage().data_ptr(), video.shape, video.stride(), video.dtype) for video in videos}
    evenly = all(video.storage_offset() == first.storage_offset() + i * step for i, video in enumerate(videos))
    if len(layout) == 1 and evenly and step > 0 and not any(video.requires_grad for video in videos):
        return first.as_strided((len(videos), *first.shape), (step, *first.stride()))
    return torch.stack(tuple(videos))
