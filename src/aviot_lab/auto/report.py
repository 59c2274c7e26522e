"""The readable report of a run with automatic budgets: tables, and accuracy over the supports that were read."""

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from aviot_lab.reproduce.plots import svg_of
from aviot_lab.reproduce.size import FEWEST_FULL
from aviot_lab.reproduce.tables import NOTHING, Section, Table, facts_of_run, percent, signed, span
from aviot_lab.reproduce.write import Document

TITLE = "Budgets that choose themselves"
INCHES = (7.5, 4.5)


def document_of(report: Mapping[str, Any]) -> Document:
    """Return the report's document, without its plot where matplotlib is not installed."""
    figures, can_draw = report["figures"], find_spec("matplotlib") is not None
    sections = [
        Section(
            "Accuracy and supports read",
            "Supports and tokens are those of all tries together. The last columns compare with the fixed ratio "
            f"{figures['reference']}, and with fixed ratios that read as many supports in the mean (two ratios, each "
            "for a share of the questions).",
            (_lines(figures), _autos(figures), _oracle(figures["oracle"])),
            "accuracy" if can_draw else None,
        ),
        Section(
            "Calibration",
            "By aviot.evaluation.calibration on the validation split: the smallest quality whose loss stays within the "
            "target with 97.5 % confidence.",
            (_calibrations(figures),),
        ),
        Section(
            "Families of questions", "Right, in per cent; the last column counts questions.", (_families(figures),)
        ),
    ]
    drawn = {"accuracy": svg_of(partial(_draw, figures), INCHES)} if can_draw else {}
    return Document(TITLE, _about(report), sections, drawn)


def lines_of(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield accuracy and supports of fixed and automatic budgets, a line each."""
    for line in (*figures["fixed"], *figures["auto"]):
        low, high = line["interval"]
        name = line.get("title", f"ratio {line['row']}")
        quality = f", quality {line['quality']:g}" if "quality" in line else ""
        yield f"{name}: {line['accuracy']:.1%} [{low:.1%}, {high:.1%}], {line['supports']:.1f} supports read{quality}"
    for one in figures["calibrations"]:
        if "refused" in one:
            yield f"{one['budget']}: not calibrated: {one['refused']}"
    reached = figures["oracle"]["supports_at_reference"]
    if reached is not None:
        yield f"oracle, as right as ratio {figures['reference']}: {reached:.1f} supports"


def _about(report: Mapping[str, Any]) -> list[str]:
    counts = report["questions"]
    return [
        f"{counts['asked']:,} questions of the test split about {counts['scenes']:,} videos of "
        f"{report['size']['frames']} frames, calibrated on {counts['calibration']:,} of the validation split; world of "
        f"seed {report['seed']}. Setting: {report['setting']}."
        + (" So few questions decide nothing." if counts["asked"] < FEWEST_FULL else ""),
        *facts_of_run(report, report["sha256"][:12]),
        "An answer is right if greedy decoding gives it exactly. Its probability is the geometric mean over its tokens "
        "without the end token. Intervals are 95 %, over scenes with all their questions where those reach further.",
    ]


def _lines(figures: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            "uncompressed" if line["ratio"] == 1 else f"ratio {line['ratio']:g}",
            percent(line["accuracy"]),
            span(line["interval"], 100),
            str(line["supports"]),
            str(line["tokens"]),
        )
        for line in figures["fixed"]
    )
    return Table(("fixed", "right, %", "95 %", "supports", "tokens"), rows)


def _autos(figures: Mapping[str, Any]) -> Table:
    reference = figures["reference"]
    rows = []
    for line in figures["auto"]:
        (apart,) = (one for one in line["against"] if one["against"] == reference)
        above = line["above_fixed"]
        rows.append(
            (
                line["title"],
                f"{line['quality']:g}",
                percent(line["accuracy"]),
                span(line["interval"], 100),
                percent(line["again"]),
                f"{line['supports']:.1f}",
                f"{line['tokens']:,.0f}",
                f"{signed(apart['difference'])} ({span(apart['interval'], 100, '+')})",
                f"{signed(above['mean'])} ({span(above['interval'], 100, '+')})",
            )
        )
    return Table(
        (
            "automatic",
            "quality",
            "right, %",
            "95 %",
            "asked again, %",
            "supports read",
            "tokens read",
            f"minus ratio {reference}",
            "minus fixed, as many read",
        ),
        tuple(rows),
    )


def _oracle(oracle: Mapping[str, Any]) -> Table:
    rows = [
        (f"at most ratio {one['largest']}", percent(one["accuracy"]), f"{one['supports']:.1f}")
        for one in oracle["points"]
    ]
    reached = oracle["supports_at_reference"]
    rows.append(("as right as the reference", "", NOTHING if reached is None else f"{reached:.1f}"))
    return Table(("oracle", "right, %", "supports"), tuple(rows))


def _calibrations(figures: Mapping[str, Any]) -> Table:
    rows = []
    for one in figures["calibrations"]:
        found = one.get("calibration")
        cells = (
            (one["refused"], NOTHING, NOTHING, NOTHING)
            if found is None
            else (f"{found['quality']:g}", *_last(one), f"{found['questions']:,}")
        )
        rows.append((one["budget"], one["min"], one["max"], f"{100 * one['target']:g}", *cells))
    return Table(
        ("budget", "min", "max", "target, points", "quality", "lost, points", "at most", "questions"), tuple(rows)
    )


def _last(one: Mapping[str, Any]) -> tuple[str, str]:
    """Return the loss at the chosen quality, and its bound."""
    (point,) = (point for point in one["curve"] if point["quality"] == one["calibration"]["quality"])
    return f"{100 * point['loss']:.2f}", f"{100 * point['most']:.2f}"


def _families(figures: Mapping[str, Any]) -> Table:
    families = figures["families"]
    first = families[figures["reference"]]
    rows = tuple(
        (family, *(percent(shares[family]["accuracy"]) for shares in families.values()), str(share["questions"]))
        for family, share in first.items()
    )
    return Table(("family", *families, "questions"), rows)


def _draw(figures: Mapping[str, Any], panel: Any) -> None:
    fixed = figures["fixed"]
    shares = [100 * line["accuracy"] for line in fixed]
    ends = [[abs(100 * line["interval"][end] - 100 * line["accuracy"]) for line in fixed] for end in (0, 1)]
    panel.errorbar([line["supports"] for line in fixed], shares, ends, marker="o", capsize=2, label="fixed ratio")
    for name, points in figures["curves"].items():
        panel.plot([one["supports"] for one in points], [100 * one["accuracy"] for one in points], label=name)
    for line in figures["auto"]:
        panel.plot([line["supports"]], [100 * line["accuracy"]], "k" + ("x" if "default" in line["title"] else "*"))
    points = figures["oracle"]["points"]
    panel.plot(
        [one["supports"] for one in points],
        [100 * one["accuracy"] for one in points],
        "--",
        color="0.5",
        label="oracle",
    )
    panel.set_xscale("log", base=2)
    panel.set_xlabel("supports read in all, mean (crosses: default quality; stars: calibrated)")
    panel.set_ylabel("right, %")
    panel.legend(fontsize=7)
