"""`aviot compare`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from aviot.commands.expand import expand_groups
from aviot.commands.groups import AnswerBudget, ModelOptions, ReadingOptions
from aviot.commands.options import METHODS, Json, MaxNewTokens, Question, VideoPath, describe
from aviot.commands.terminal import mistakes, say, working
from aviot.utils.printing import SafeConsole, one_line

if TYPE_CHECKING:
    from aviot.explain.comparison import Entry

DEFAULT_METHODS = ("aviot", "segment-mean", "uniform", "none")
WIDTH = 24  # of the chart in the terminal, in characters


@expand_groups
def compare(
    video: VideoPath,
    question: Question,
    *,
    model: ModelOptions,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help=f"Compression method; repeat for several. One of: {METHODS}. Default: {', '.join(DEFAULT_METHODS)}.",
            show_default=False,
        ),
    ] = None,
    budget: AnswerBudget,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for a page and the explorer of each method. Default: no pages.",
            show_default=False,
        ),
    ] = None,
    max_new_tokens: MaxNewTokens = 64,
    reading: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Ask one question with several methods and show answers, tokens, times and where each method looked.

    The video is decoded and encoded once. A method that cannot serve the model or the budget says why.

    Example: aviot compare cooking.mp4 -q "What is being cooked?" --method aviot --method vidcom2 --keep 0.1
    """
    with mistakes(), working() as report:
        from aviot.request import Request
        from aviot.utils.files import check_folder

        chosen = tuple(dict.fromkeys(method or DEFAULT_METHODS))
        (request, *_) = [
            Request(
                video=video,
                questions=(question,),
                budget=budget.chosen,
                method=name,
                max_new_tokens=max_new_tokens,
                device=model.device,
                **reading.arguments,
            )
            for name in chosen
        ]
        model_chosen = model.choice()
        if output is not None:
            check_folder(output, "name a folder for the pages")
        from aviot.video.files import check_opens

        check_opens(video)
        from aviot.explain.comparison import Comparison, as_data, write_comparison
        from aviot.explain.comparison import compare as ask_all
        from aviot.explain.pictures import open_with_pictures

        lm = model_chosen.load(report)
        session, pictures = open_with_pictures(lm, video, report=report, **request.reading)
        comparison = Comparison(question, request.budget, chosen, max_new_tokens)
        entries = list(ask_all(session, comparison))
        if output is not None:
            entries = write_comparison(output, session, pictures, comparison, entries)
        described = describe(request, session)
    for alone in ("method", "compressor"):
        del described[alone]
    if as_json:
        print(json.dumps(described | {"question": question, "methods": as_data(entries)}, indent=2))
    else:
        console = SafeConsole(highlight=False)
        console.print(_table(entries))
        for entry in entries:  # below the table: a column is too narrow for a sentence
            if entry.refused:
                console.print(f"{entry.method}: {escape(one_line(entry.refused))}", soft_wrap=True)
            elif entry.reason:
                console.print(
                    f"{entry.method}: {entry.tokens_read:,} tokens read in all; {entry.reason}", soft_wrap=True
                )
    if output is not None:
        say(f"open {output / 'index.html'} in a browser")
    if described["notice"] is not None:
        say(described["notice"])


def _table(entries: "list[Entry]") -> Table:
    from aviot.explain.comparison import sparkline

    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("answer", overflow="fold")
    for name in ("tokens", "compress", "first token"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("where it looked", no_wrap=True)
    for entry in entries:
        if entry.refused:
            table.add_row(entry.method, "refused", "", "", "", "")
            continue
        spent = (entry.milliseconds or {}).get("compress", 0.0)
        numbers = (f"{entry.tokens_after:,}", f"{spent:,.0f} ms", f"{entry.first_token:,.0f} ms")
        table.add_row(entry.method, escape(one_line(entry.answer)), *numbers, sparkline(entry.frame_shares, WIDTH))
    return table
