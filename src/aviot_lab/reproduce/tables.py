"""Tables of the figures, one section per experiment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aviot_lab.reproduce.separation import DISTANCES
from aviot_lab.reproduce.size import FEWEST_FULL

NOTHING = "–"  # noqa: RUF001


@dataclass(frozen=True)
class Table:
    """Headings and cells."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """An experiment: its description, its tables, and the name of its plot."""

    title: str
    text: str
    tables: tuple[Table, ...]
    plot: str | None = None


def sections(report: Mapping[str, Any]) -> list[Section]:
    """Return the sections in the paper's order."""
    figures, size = report["figures"], report["size"]
    controlled = figures["controlled"]
    return [
        Section(
            f"Controlled comparison at {size['frames']} frames",
            "All rows answer the same questions about the same encoded videos. Baselines are applied at inference on "
            "the same weights, and on weights fine-tuned with them where their folders were given.",
            (*_with_differences(controlled), *_missing(controlled["missing"])),
            "controlled",
        ),
        Section(
            "Families of questions",
            "The same rows, family by family, with 95 % intervals; the last column counts questions.",
            (_families(figures["families"], controlled["lines"]),),
            "families",
        ),
        Section(
            "Component ablation",
            "At inference on one checkpoint, as in the paper: only the compressor's switches change.",
            _with_differences(figures["ablation"]),
            "ablation",
        ),
        Section(
            "Balanced and unbalanced pilot",
            "The pilot as printed leaves row masses uniform whatever the video shows, so relevance alone decides the "
            "budgets; a pilot with relaxed marginals has masses that fall with the cost. "
            f"The checkpoint's own is the {figures['pilot']['own']} one.",
            _with_differences(figures["pilot"]),
        ),
        *_beyond(figures.get("beyond")),
        Section(
            "Compression ratios",
            f"Training saw ratios from 2 to {figures['curve']['trained_to']:g}; those above are new to the model. "
            f"Videos of {size['long_frames']} frames, two a second, as in the paper's curve, and of {size['frames']}.",
            _with_differences(figures["curve"]),
            "curve",
        ),
        Section(
            f"{size['sampled']} frames against two a second",
            f"Videos of {size['long_frames']} frames, two a second: {size['sampled']} of them evenly spread, or all. "
            f"The last row has as many supports as {size['sampled']} frames at ratio {size['ratio']:g}.",
            _with_differences(figures["frames"]),
        ),
        Section(
            "The compressor's question",
            "The decoder always reads the right question. The compressor is conditioned on the same one (matched), the "
            "next one about the same video (rotated), or none. Videos with one question are left out. Distances "
            "between questions are those of a video's first two under each condition, if it has a third to rotate "
            "to. Rotated, the compressor is conditioned on its second and third.",
            (*_with_differences(figures["intervention"]), _distances(figures["intervention"]["distances"])),
            "distances",
        ),
        Section(
            "Gates and allocation",
            "Share of the outputs by granularity, and the entropy of how supports are spread over segments (one: "
            "equally), averaged over stages.",
            (_gates(figures["gates"]),),
            "gates",
        ),
    ]


def _beyond(figures: Mapping[str, Any] | None) -> Iterator[Section]:
    """Yield the section on switches that the paper does not have; none for a report of an earlier version."""
    if figures is None:
        return
    threshold = figures["threshold"]
    own = figures["own"]
    yield Section(
        "Allocation and cost beyond the paper",
        "Relevance of any spread allocates as strongly as printed; calibrated, only where its range over frames is "
        f"evidence. The checkpoint's own allocation is {own['allocation']}, "
        + ("without a threshold of evidence" if threshold is None else f"its threshold of evidence {threshold:.4g}")
        + f"; its own cost is {own['cost_normalization']}. Weights that were trained with the printed cost were not "
        "trained with a normalised one, nor the other way round: that row shows how far they lean on it.",
        _with_differences(figures),
    )


def facts_of_run(report: Mapping[str, Any], weights: str) -> list[str]:
    """Return sentences with a run's command, weights, commit, machine, versions and time."""
    machine = report["machine"]
    return [
        f"Command: {report['command']}",
        f"Weights (SHA-256): {weights}.",
        f"Commit {report['commit'] or 'unknown'}; {machine['device']}, {report['dtype']}; "
        + ", ".join(f"{name} {number}" for name, number in report["versions"].items())
        + ".",
        f"Measured in {report['seconds']:,.0f} s.",
    ]


def preamble(report: Mapping[str, Any]) -> list[str]:
    """Return sentences about a run: questions, command, weights, machine and intervals."""
    counts = report["questions"]
    models = ", ".join(f"{name}: {model['sha256'][:12]}" for name, model in report["models"].items())
    return [
        f"{counts['short']:,} questions of the {report['split']} split about {counts['scenes']:,} videos, and "
        f"{counts['long']:,} about {counts['long_scenes']:,} long ones; world of seed {report['seed']}. "
        f"Setting: {report['setting']}."
        + (" So few questions decide nothing." if counts["short"] < FEWEST_FULL else ""),
        *facts_of_run(report, models),
        "An answer is right if every token of it is what greedy decoding would say; open questions and such with "
        "options take turns. Intervals are 95 %: Wilson's for a row, Agresti and Min's for a difference of rows, whose "
        "questions are paired; or as far as the percentiles over scenes drawn anew reach beyond it.",
    ]


def percent(value: float | None) -> str:
    """Format a share in per cent."""
    return NOTHING if value is None else f"{100 * value:.1f}"


def _with_differences(figures: Mapping[str, Any]) -> tuple[Table, Table]:
    counted = ("supports",) if any("supports" in line for line in figures["lines"]) else ()
    lines = tuple(
        (
            line["title"],
            _ratio(line),
            *(str(line[count]) for count in counted),
            percent(line["accuracy"]),
            span(line["interval"], 100),
            str(line["questions"]),
        )
        for line in figures["lines"]
    )
    apart = tuple(
        (one["title"], _ratio(one), signed(one["difference"]), span(one["interval"], 100, "+"))
        for one in figures["differences"]
    )
    return (
        Table(("row", "ratio", *counted, "right, %", "95 %", "questions"), lines),
        Table(("difference", "ratio", "points", "95 %, paired"), apart),
    )


def _missing(missing: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    if missing:
        titles = dict.fromkeys((one["title"], one["train"]) for one in missing)
        yield Table(("not measured", "what would train it"), tuple(titles))


def _families(families: Mapping[str, Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> Table:
    titles = [f"{line['title']} {_ratio(line)}".strip() for line in lines]
    first = families[lines[0]["row"]]
    rows = (
        (
            family,
            *(_with_interval(families[line["row"]][family]) for line in lines),
            str(first[family]["questions"]),
        )
        for family in first
    )
    return Table(("family", *titles, "questions"), tuple(rows))


def _distances(distances: Sequence[Mapping[str, Any]]) -> Table:
    rows = (
        (
            one["kind"],
            *(
                cell
                for quantity in DISTANCES
                for cell in (f"{one[quantity]['mean']:.4f}", span(one[quantity]["interval"], 1, places=4))
            ),
            str(one["allocation"]["count"]),
        )
        for one in distances
    )
    headings = (heading for title in DISTANCES.values() for heading in (title, "95 %"))
    return Table(("compressions", *headings, "pairs"), tuple(rows))


def _gates(gates: Sequence[Mapping[str, Any]]) -> Table:
    rows = (
        (f"{one['ratio']:g}", one["quantity"], f"{one['mean']:.3f}", span(one["interval"], 1, places=3))
        for one in gates
    )
    return Table(("ratio", "quantity", "mean", "95 %"), tuple(rows))


def _with_interval(share: Mapping[str, Any]) -> str:
    return f"{percent(share['accuracy'])} ({span(share['interval'], 100, places=0)})"


def _ratio(line: Mapping[str, Any]) -> str:
    ratio = line.get("ratio")
    return "" if ratio is None else f"{ratio:g}"


def signed(value: float | None) -> str:
    """Format a difference of shares in points, with its sign."""
    return NOTHING if value is None else f"{100 * value:+.1f}"


def span(interval: Sequence[float] | None, scale: float, sign: str = "", places: int = 1) -> str:
    """Format an interval, scaled."""
    if interval is None:
        return NOTHING
    return " to ".join(format(scale * end, f"{sign}.{places}f") for end in interval)
