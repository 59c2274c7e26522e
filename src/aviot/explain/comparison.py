"""Several methods asked the same question about one video: answers, tokens, times, and where each method looked."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from aviot import methods
from aviot.budget import AutoBudget, Budget
from aviot.explain.outputs import Outputs
from aviot.explain.outputs import explain as write_explanation
from aviot.explain.pictures import Pictures
from aviot.explain.study import Asking, ModelInfo
from aviot.session import VideoSession
from aviot.utils.files import atomic_write, explain_write_errors

INDEX = "index.html"
BARS = " ▁▂▃▄▅▆▇█"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
:root { color-scheme: light dark; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; min-width: 12rem; height: 2.5rem; fill: currentColor; }
.refused { opacity: .7; }
@media (max-width: 48rem) {
  thead { display: none; }
  tr, td { display: block; text-align: left !important; border: 0; padding: .1rem 0; }
  tr { border-bottom: 1px solid #8884; padding: .6rem 0; }
  td.number::before { content: attr(data-label) ": "; }
}
"""


@dataclass(frozen=True)
class Comparison:
    """A question about one video, asked with several methods under one budget."""

    question: str
    budget: Budget | AutoBudget | None  # None: the checkpoint's own
    methods: tuple[str, ...]
    max_new_tokens: int

    def accepted(self, entry: "Entry") -> Budget | None:
        """Return the budget of a method's answer: of an automatic one, the step that was accepted."""
        if not isinstance(self.budget, AutoBudget):
            return self.budget
        return next(each for each in self.budget.budgets if str(each) == entry.budget)


@dataclass(frozen=True)
class Entry:
    """One method's answer; `refused` has the reason if the method cannot serve this video, model or budget.

    `frame_shares` is the share of each sampled frame in all tokens that the decoder got, `first_token` the milliseconds
    of compression and prefill. Of an automatic budget, `budget` is the step that was accepted, `reason` why,
    `tokens_read` what all steps read, and `first_token` the time of the whole answer, which comes in one piece.
    """

    method: str
    title: str
    answer: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    milliseconds: dict[str, float] | None = None
    first_token: float = 0.0
    frame_shares: tuple[float, ...] = ()
    refused: str = ""
    budget: str = ""
    tokens_read: int = 0
    reason: str = ""
    page: str = ""  # the explorer's page for this method, if one was written


def compare(session: VideoSession, comparison: Comparison) -> Iterator[Entry]:
    """Ask with one method after another; a method that refuses the pair or the budget costs only its own entry."""
    for name in comparison.methods:
        method = methods.get(name)
        entry = Entry(name, method.title or name)
        session.report(name)
        try:
            answer = session.ask(
                comparison.question,
                budget=comparison.budget if method.compresses else None,
                method=method,
                max_new_tokens=comparison.max_new_tokens,
            )
        except ValueError as error:
            yield replace(entry, refused=str(error))
            continue
        spent = {part: answer.milliseconds[part] for part in ("compress", "prefill", "generate")}
        assert answer.compressed is not None  # `ask` keeps the record
        yield replace(
            entry,
            title=entry.title if answer.method == name else f"{entry.title} (as {answer.method})",
            answer=answer.text,
            tokens_before=answer.tokens_before,
            tokens_after=answer.tokens_after,
            milliseconds=spent,
            first_token=round(sum(spent.values()) - (0 if answer.steps else spent["generate"]), 1),
            budget=answer.steps[-1].budget if answer.steps else "",
            tokens_read=answer.tokens_read,
            reason=answer.reason,
            frame_shares=tuple(answer.compressed.frame_shares.tolist()),
        )


def sparkline(shares: Sequence[float], width: int) -> str:
    """Return a bar chart of one line; a share that is not zero is never drawn as a blank."""
    width = min(width, len(shares))
    ends = [number * len(shares) // width for number in range(width + 1)]
    means = [sum(shares[first:end]) / (end - first) for first, end in pairwise(ends)]
    most = max(means, default=0.0) or 1.0
    return "".join(BARS[0 if value <= 0 else max(1, round(value / most * (len(BARS) - 1)))] for value in means)


def write_comparison(
    folder: Path, session: VideoSession, pictures: Pictures, comparison: Comparison, entries: Sequence[Entry]
) -> list[Entry]:
    """Write the explorer's page for every method that compresses, and a page beside them.

    Returns the entries with the names of their pages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for entry in entries:
        method = methods.get(entry.method)
        if entry.refused or not method.compresses:
            written.append(entry)
            continue
        asking = Asking((comparison.question,), comparison.accepted(entry), entry.method, comparison.max_new_tokens)
        page = f"{entry.method}.html"
        write_explanation(session, pictures, asking, Outputs(folder / page))
        written.append(replace(entry, page=page))
    index = folder / INDEX
    with explain_write_errors(index, "free some space or name another folder"), atomic_write(index) as temporary:
        temporary.write_text(page_of(session, comparison, written), encoding="utf-8")
    return written


def page_of(session: VideoSession, comparison: Comparison, entries: Sequence[Entry]) -> str:
    """Return the page with one row per method; it loads nothing, and text of the video and the model is escaped."""
    info = ModelInfo.of(session.backbone)
    video = session.video
    budget = comparison.budget or session.backbone.default_budget
    head = ("method", "answer", "tokens", "compression", "first token", "share of each moment")
    columns = "".join(f'<th{_number(label)} scope="col">{label}</th>' for label in head)
    notice = info.notice(video)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{html.escape(comparison.question)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{html.escape(comparison.question)}</h1>
<p>{html.escape(video.name)}, {len(video)} frames, {video.duration:.1f} s; {budget}; answered by
{html.escape(info.name)} ({html.escape(info.facts)}).</p>
{f"<p>{html.escape(notice)}</p>" if notice else ""}
<table><thead><tr>{columns}</tr></thead>
<tbody>
{"".join(_row(entry) for entry in entries)}
</tbody></table>
<p>A bar's height is the share of that moment in all tokens that the decoder read. Times are those of one run.</p>
</main>
</body>
</html>
"""


def _row(entry: Entry) -> str:
    name = html.escape(entry.title)
    named = f'<a href="{html.escape(entry.page)}">{name}</a>' if entry.page else name
    if entry.refused:
        return f'<tr class="refused"><td>{named}</td><td colspan="5">{html.escape(entry.refused)}</td></tr>\n'
    spent = entry.milliseconds or {}
    in_all = f"; {entry.tokens_read:,} read in all" if entry.reason else ""
    numbers = (
        ("tokens", f"{entry.tokens_after:,} of {entry.tokens_before:,}{in_all}"),
        ("compression", f"{spent.get('compress', 0.0):,.0f} ms"),
        ("first token", f"{entry.first_token:,.0f} ms"),
    )
    cells = "".join(f'<td class="number" data-label="{label}">{value}</td>' for label, value in numbers)
    return f"<tr><td>{named}</td><td>{html.escape(entry.answer)}</td>{cells}<td>{_chart(entry)}</td></tr>\n"


def _chart(entry: Entry) -> str:
    """Return the shares of the frames as an SVG bar chart."""
    most = max(entry.frame_shares, default=0.0) or 1.0
    bars = "".join(
        f'<rect x="{number}" y="{100 - 100 * share / most:.1f}" width="0.9" height="{100 * share / most:.1f}"/>'
        for number, share in enumerate(entry.frame_shares)
    )
    label = f"share of {len(entry.frame_shares)} frames"
    view = f"0 0 {len(entry.frame_shares)} 100"
    return f'<svg viewBox="{view}" preserveAspectRatio="none" role="img" aria-label="{label}">{bars}</svg>'


def _number(label: str) -> str:
    return ' class="number"' if label in ("tokens", "compression", "first token") else ""


def as_data(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the entries as JSON data."""
    return [asdict(entry) for entry in entries]
