"""Where the questions and the answers of a row of tokens are."""

from collections.abc import Iterator, Sequence

from aviot.backbones.llava_video.sequence import IGNORED


def answer_spans(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First place and end of every answer: a stretch that is supervised."""
    return stretches([label != IGNORED for label in labels])


def stretches(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First place and end of every stretch of flags that are set."""
    first = None
    for place, flag in enumerate((*flags, False)):
        if flag and first is None:
            first = place
        elif not flag and first is not None:
            yield first, place
            first = None
