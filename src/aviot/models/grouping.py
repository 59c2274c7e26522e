"""Which prompts are compressed together: those whose videos have the same number of frames, at one ratio."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

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


@dataclass(frozen=True)
class Group:
    """Prompts that share a call of the compressor: videos of one length, one ratio, all with a question or none."""

    rows: tuple[int, ...]  # places among the prompts
    ratio: float
    videos: tuple[int, ...]  # those asked about, each once
    asked: tuple[int, ...]  # for each row, the place of its video among `videos`
    questions: Float[Tensor, "B d"] | None

    @classmethod
    def of(cls, numbers: Sequence[int], rows: Sequence[Row], ratio: float) -> "Group":
        """The group of the rows with these numbers."""
        videos = tuple(dict.fromkeys(rows[number].video for number in numbers))
        questions = [question for number in numbers if (question := rows[number].question) is not None]
        return cls(
            rows=tuple(numbers),
            ratio=ratio,
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


def one_a_row(ratio: float | Sequence[float], rows: int) -> tuple[float, ...]:
    """The ratio of each prompt: one for all, or one each."""
    ratios = tuple(ratio) if isinstance(ratio, Sequence) else (ratio,) * rows
    if len(ratios) != rows:
        raise ValueError(f"give one ratio, or one a prompt: got {len(ratios)} ratios and {rows} prompts")
    return ratios


def group_rows(
    rows: Sequence[Row], encoded: Sequence[Float[Tensor, "T S D"]], ratios: Sequence[float]
) -> Iterator[Group]:
    """Rows grouped by frames, question or none, and ratio, neighbours asking about the same video.

    Without a gradient a group has at most `ELEMENTS_AT_ONCE` features, or is one prompt. With one, everything is kept
    for the way back, however it is grouped.
    """

    def kind(number: int) -> tuple[int, bool, float]:
        return len(encoded[rows[number].video]), rows[number].question is not None, ratios[number]

    order = sorted(range(len(rows)), key=lambda number: (*kind(number), rows[number].video))
    for _, members in groupby(order, kind):
        numbers = list(members)
        elements = encoded[rows[numbers[0]].video].numel()
        size = len(numbers) if torch.is_grad_enabled() else max(1, ELEMENTS_AT_ONCE // elements)
        for first in range(0, len(numbers), size):
            yield Group.of(numbers[first : first + size], rows, ratios[numbers[0]])


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
