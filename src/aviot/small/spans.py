"""Where the answers of a row of tokens are."""

from collections.abc import Iterator, Sequence

from aviot.models.sequence import IGNORED


def answer_spans(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First place and end of every answer: a stretch that is supervised."""
    first = None
    for place, label in enumerate((*labels, IGNORED)):
        if label != IGNORED and first is None:
            first = place
        elif label == IGNORED and first is not None:
            yield first, place
            first = None
