"""Why compression does not pay in a run, in sentences made of the parts that were measured."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from aviot.bench.result import FIRST_TOKEN, Row, title_of
from aviot.bench.sizes import SIZES
from aviot.bench.timing import Measurement

CHANGING = FIRST_TOKEN[1:]  # the encoder's part is the same with and without compression


def explain(rows: Sequence[Row], *, size: str | None, device: str) -> tuple[str, ...]:
    """Return a note for each row that is slower than no compression, and one on what to run instead.

    `size` names random weights, None a checkpoint. Tiny random weights on a CPU always get a note: their figures say
    little about a real model.
    """
    slower = [
        _slower(row, whole)
        for _, group in groupby(rows, key=lambda row: (row.frames, row.batch))
        for whole, *others in [list(group)]
        for row in others
        if row.factor is not None and row.factor < 1
    ]
    toy = size == "tiny" and device == "cpu" and any(row.factor is not None for row in rows)
    if not slower and not toy:
        return ()
    return (*slower, " ".join(_advice(size, device, toy=toy)))


def _slower(row: Row, whole: Row) -> str:
    """Say where a row loses time against the uncompressed one: before the decoder, or in its prefill."""
    parts = {name: (_median(row, name), _median(whole, name)) for name in CHANGING}
    added = parts["decoder_input"][0] - parts["decoder_input"][1]
    saved = parts["prefill"][1] - parts["prefill"][0]
    compress = row.parts.get("compress")
    alone = f" (compressing alone takes {ms(compress.median_ms)})" if isinstance(compress, Measurement) else ""
    before = f"it {'adds' if added > 0 else 'saves'} {ms(abs(added))} before the decoder{alone}"
    prefill = f"saves {ms(saved)} of the prefill's" if saved > 0 else f"adds {ms(-saved)} to the prefill's"
    text = (
        f"{row.frames} frames, batch {row.batch}, {title_of(row.method)} at ratio {row.ratio:g}: the first token "
        f"comes {row.factor:.2f} times as fast as without compression, because {before} and {prefill} "
        f"{ms(parts['prefill'][1])}."
    )
    spread = sum(_spread(each, name) for each in (row, whole) for name in CHANGING)
    if added - saved < spread:
        return f"{text} The difference of {ms(added - saved)} is within the spread of the timed runs."
    if added > parts["prefill"][1]:
        return f"{text} Even the whole prefill takes less than compression adds, so no ratio could pay off here."
    return text


def _advice(size: str | None, device: str, *, toy: bool) -> Iterator[str]:
    """Say what the figures are worth and what to measure instead."""
    if toy:
        yield "Tiny random weights on a CPU show that everything runs, not what compression saves in a real model."
    names = list(SIZES)
    larger = [] if size is None else [f"--size {name}" for name in names[names.index(size) + 1 :]]
    instead = [
        *larger,
        *([] if size is None else ["a checkpoint with --model"]),
        *(["a GPU"] if device == "cpu" else []),
    ]
    if instead:
        yield f"Compression pays where the prefill it saves is expensive: measure with {_listed(instead)}."
    else:
        yield "Prefill grows with the square of its tokens: measure more frames."


def ms(value: float) -> str:
    """Format milliseconds with the digits that matter."""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2f} ms"


def _median(row: Row, name: str) -> float:
    part = row.parts[name]
    if not isinstance(part, Measurement):
        raise TypeError(f"{name} was not measured, so the row has no factor")
    return part.median_ms


def _spread(row: Row, name: str) -> float:
    part = row.parts[name]
    return part.spread_ms if isinstance(part, Measurement) else 0.0


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
