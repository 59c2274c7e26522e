"""The readable report of a field experiment: tables and plots, model by model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aviot_lab.field.plots import draw_field
from aviot_lab.reproduce.size import FEWEST_FULL
from aviot_lab.reproduce.tables import NOTHING, Section, Table, facts_of_run, percent, signed, span
from aviot_lab.reproduce.write import Document

TITLE = "Methods of the field on the same questions"
FAMILIES_AT = (0.25, 0.1)  # shares of which the report has tables of families


def document_of(report: Mapping[str, Any]) -> Document:
    """Return the report's document."""
    found = [section for name in report["models"] for section in _sections(name, report)]
    return Document(TITLE, _about(report), found, draw_field(report["figures"]))


def _about(report: Mapping[str, Any]) -> list[str]:
    counts = report["questions"]
    models = ", ".join(f"{name}: {_weights(files)[:12]}" for name, files in report["models"].items())
    return [
        f"{counts['asked']:,} questions of the {report['split']} split about {counts['scenes']:,} videos of "
        f"{report['size']['frames']} frames; world of seed {report['seed']}. Setting: {report['setting']}."
        + (" So few questions decide nothing." if counts["asked"] < FEWEST_FULL else ""),
        *facts_of_run(report, models),
        "A budget counts the visual tokens that enter the decoder, separators included; of methods inside the decoder, "
        "all tokens enter and the budget counts what is left. An answer is right if greedy decoding gives it exactly.",
        "Intervals are 95 %: Wilson's for a row, Agresti and Min's for a paired difference, or as far as percentiles "
        "over scenes drawn anew reach beyond them; of means over budgets, those percentiles alone. Nothing is "
        "corrected for the number of comparisons.",
        "Times are medians over batches, each of one prompt alone: of the method itself, given its input; and of the "
        "first token, from encoded video to logits (projection, method and prefill).",
    ]


def _weights(files: Mapping[str, str]) -> str:
    return next(digest for file, digest in files.items() if file.endswith(".safetensors"))


def _sections(name: str, report: Mapping[str, Any]) -> Iterator[Section]:
    figures, reference = report["figures"][name], report["reference"]
    yield Section(
        f"{name}: accuracy and tokens",
        "Every method of the registry, best first in the mean of three budgets, then each budget.",
        (_means(figures["means"], reference), _lines(figures)),
        f"{name}-accuracy",
    )
    yield Section(
        f"{name}: accuracy and time to the first token",
        f"Paired differences: {reference} minus each method, in points.",
        (_differences(figures["differences"]),),
        f"{name}-time",
    )
    for keep in FAMILIES_AT:
        if keep in report["size"]["keeps"]:
            yield Section(
                f"{name}: families at keep {100 * keep:g} %",
                "Accuracy in per cent; intervals are in report.json.",
                (_families(figures, keep),),
            )


def _means(means: Sequence[Mapping[str, Any]], reference: str) -> Table:
    rows = tuple(
        (
            line["method"],
            percent(line["mean"]),
            span(line["interval"], 100),
            *(
                (signed(line["difference"]["mean"]), span(line["difference"]["interval"], 100, "+"))
                if "difference" in line
                else (NOTHING, NOTHING)
            ),
        )
        for line in means
    )
    shares = ", ".join(f"{100 * keep:g}" for keep in means[0]["keeps"]) if means else ""
    return Table(
        ("method", f"right, %, mean of keep {shares} %", "95 %", f"{reference} minus it", "95 %, paired"), rows
    )


def _lines(figures: Mapping[str, Any]) -> Table:
    return Table(
        ("method", "keep, %", "right, %", "95 %", "tokens entering", "left", "method, ms", "first token, ms"),
        tuple(_cells(line) for line in (figures["uncompressed"], *figures["lines"])),
    )


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    name = line["title"] if line["keep"] is None else line["method"]
    keep = "" if line["keep"] is None else f"{100 * line['keep']:g}"
    if "refused" in line:
        return (name, keep, NOTHING, line["refused"], NOTHING, NOTHING, NOTHING, NOTHING)
    own, first = (line["milliseconds"][part] for part in ("method", "first token"))
    return (
        name,
        keep,
        percent(line["accuracy"]),
        span(line["interval"], 100),
        f"{line['entered']:,.0f}",
        f"{line['left']:,.0f}" if line["inside"] else "",
        "in the prefill" if own is None else f"{own:,.2f}",
        f"{first:,.1f}",
    )


def _differences(differences: Sequence[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (one["method"], f"{100 * one['keep']:g}", signed(one["difference"]), span(one["interval"], 100, "+"))
        for one in differences
    )
    return Table(("method", "keep, %", "points", "95 %, paired"), rows)


def _families(figures: Mapping[str, Any], keep: float) -> Table:
    families, whole = figures["families"], figures["uncompressed"]["row"]
    lines = [line for line in figures["lines"] if line["keep"] == keep and "refused" not in line]
    rows = tuple(
        (
            family,
            *(percent(families[row][family]["accuracy"]) for row in (whole, *(line["row"] for line in lines))),
            str(share["questions"]),
        )
        for family, share in families[whole].items()
    )
    return Table(("family", "uncompressed", *(line["method"] for line in lines), "questions"), rows)
