"""Journals: the folder of a finished evaluation, edited, then resumed or verified."""

import io
import json
import os
import shutil
import sys
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutate import Change, change_folder, choose_bytes, mutate_bytes, mutate_json, nasty_value
from fuzz.target import Refused, Target, plain_errors, require

TESTS = Path(__file__).parents[1]
ROWS = "parts/rows-0000.jsonl"
OUTPUTS = ("results.jsonl", "results.csv", "summary.json", "summary.csv", "summary.md", "manifest.json")
KNOWN = {*OUTPUTS, ".lock", "parts", "parts/rows-0000.jsonl"}
ROW_NAMES = (
    "item",
    "id",
    "setting",
    "status",
    "correct",
    "kind",
    "video",
    "reason",
    "judge",
    "damage",
    "how",
    "unscored",
)
SETTINGS = ("aviot@2", "none")
HARMLESS = ("tear", "drop", "repeat", "nothing")
"""Edits that a kill or a second process can cause: resuming after them must give the same results again."""


def prepare(sources: Path) -> None:
    """Evaluate a tiny model on twelve items of four videos, one of them broken and one missing."""
    _import_sets()
    from evaluation_sets import make_set, run

    make_set(sources)
    run(sources, sources / "run", ratios=(2.0,))


def _import_sets() -> None:
    sys.path[:0] = [str(TESTS / folder) for folder in ("evaluation", "training", "video")]


def control(sources: Path, folder: Path) -> None:
    """Copy the run as it is, to be resumed."""
    shutil.copytree(sources / "run", folder / "resumed")
    _describe(folder, sources, "resumed", harmless=True)


def _describe(folder: Path, sources: Path, action: str, *, harmless: bool, retry: bool = False) -> None:
    about = {"sources": str(sources), "action": action, "harmless": harmless, "retry": retry}
    (folder / "case.json").write_text(json.dumps(about))


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Edit one or two of a run's files."""
    action = rng.choice(("resumed", "resumed", "verified"))
    run = shutil.copytree(sources / "run", folder / action)
    retry = rng.random() < 0.2
    kinds, done = change_folder(rng, EDITS, run)
    _describe(folder, sources, action, harmless=set(kinds) <= set(HARMLESS), retry=retry)
    return f"{action}{' again' * retry}: {done}"


def _read_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []


def _tear(rng: Random, run: Path) -> str:
    """Cut the journal's last line, or follow it by the zeros that a crash of the machine leaves."""
    data = (run / ROWS).read_bytes()
    cut = rng.randrange(len(data) + 1)
    (run / ROWS).write_bytes(data[:cut] + b"\0" * rng.choice((0, 0, 100)))
    return f"at {cut}"


def _drop(rng: Random, run: Path) -> str:
    lines = _read_lines(run / ROWS)
    kept = sorted(rng.sample(range(len(lines)), rng.randint(0, len(lines))))
    (run / ROWS).write_bytes(b"".join(lines[place] for place in kept))
    return f"all but {len(kept)} rows"


def _repeat(rng: Random, run: Path) -> str:
    """Write rows twice, or in another order, or into the journal of another process."""
    lines = _read_lines(run / ROWS)
    more = rng.choices(lines, k=rng.randint(1, 30)) if lines else []
    other = run / rng.choice((ROWS, "parts/rows-0001.jsonl"))
    with other.open("ab") as file:
        file.writelines(more)
    return f"{len(more)} rows in {other.name}"


def _nothing(rng: Random, run: Path) -> str:
    """Remove what is written last, so that it is put together again."""
    name = rng.choice(("results.jsonl", "summary.json", "results.csv", ".lock"))
    (run / name).unlink(missing_ok=True)
    return f"without {name}"


def _edit_rows(rng: Random, run: Path) -> str:
    """Change fields of rows, in the journal or in the results."""
    name = rng.choice((ROWS, ROWS, "results.jsonl"))
    lines = _read_lines(run / name) or [b"{}\n"]
    done = []
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(len(lines))
        try:
            row = json.loads(lines[place])
            field = rng.choice(ROW_NAMES)
            row[field] = rng.choice((*_strange(field), nasty_value(rng)))
            data, what = json.dumps(row).encode(), f"{field} is {row[field]!r:.50}"
            if rng.random() < 0.3:
                data, what = mutate_json(rng, row, ROW_NAMES)
        except (ValueError, TypeError, RecursionError):
            data, what = b"[]", "an array"
        lines[place] = data.replace(b"\n", b" ") + b"\n"
        done.append(what)
    (run / name).write_bytes(b"".join(lines))
    return f"{name}: {'; '.join(done)}"


def _strange(field: str) -> tuple[Any, ...]:
    """Return values of a row's field that are of the right type and mean something else."""
    return {
        "item": (9999, -1, 0, True, 1.0, "0", 12, 2**63),
        "setting": (*SETTINGS, "aviot@3", "uniform@2", "aviot@2 ", ""),
        "status": ("answered", "failed", "unknown"),
        "correct": (True, False, None, 2, -1, 0.5, 10**9),
        "judge": ({"correct": True, "score": 99}, {"unjudged": "x"}, {}, [], {"score": float("nan")}),
        "damage": ({"claimed_seconds": 0, "missing_seconds": 1, "decoder_errors": 0}, {}, {"x": 1}),
        "id": ("\x1b[31mred", "choice-0"),
        "video": ("\x1b[2J", "../x"),
        "reason": ("\x1b]0;title\x07",),
    }.get(field, (None,))


def _add_rows(rng: Random, run: Path) -> str:
    """Add rows of items or settings that the run does not have, or verdicts of no judge."""
    lines = _read_lines(run / ROWS)
    row = json.loads(rng.choice(lines)) if lines else {}
    kind = rng.choice(("rows", "verdicts"))
    row |= {"item": rng.choice(_strange("item")), "setting": rng.choice(_strange("setting"))}
    row |= {"correct": rng.choice(_strange("correct")), "score": rng.choice((0, 5, 99, "x", float("nan")))}
    path = run / "parts" / f"{kind}-{rng.choice(('0000', '0001', '9999', 'x'))}.jsonl"
    with path.open("ab") as file:
        file.write(json.dumps(row).encode() + b"\n")
    return f"{path.name}: {row['item']!r}, {row['setting']!r}, {row['correct']!r}"


def _edit_json(rng: Random, run: Path) -> str:
    name = rng.choice(("manifest.json", "manifest.json", "manifest.json", "summary.json"))
    path = run / name
    value = json.loads(path.read_text()) if path.is_file() else {}
    if "starts" in value:
        value["starts"] = value["starts"][:1]
    data, what = mutate_json(rng, value, ("identity", "judge", "places", "starts", "format", "settings", "items"))
    path.write_bytes(data)
    return f"{name}: {what}"


def _edit_bytes(rng: Random, run: Path) -> str:
    path = rng.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    data, what = mutate_bytes(rng, path.read_bytes() or b"\0")
    if rng.random() < 0.1:
        data, what = data + choose_bytes(rng, rng.choice((1, 1000, 10**6))), f"{what} and a tail"
    path.write_bytes(data)
    return f"{path.name}: {what}"


def _special(rng: Random, run: Path) -> str:
    """Put a folder, a link or a pipe in the place of a file."""
    name = rng.choice(("manifest.json", ROWS, "results.jsonl", "summary.json", ".lock", "parts/rows-0002.jsonl"))
    path = run / name
    path.unlink(missing_ok=True)
    kind = rng.choice(("folder", "link", "pipe"))
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(rng.choice((path.name, "/dev/full", "/dev/null", "/dev/zero")))
    else:
        os.mkfifo(path)
    return f"{name} is a {kind}"


EDITS: dict[str, Change] = {
    "tear": _tear,
    "drop": _drop,
    "repeat": _repeat,
    "nothing": _nothing,
    "edit": _edit_rows,
    "add": _add_rows,
    "json": _edit_json,
    "bytes": _edit_bytes,
    "special": _special,
}


def check(folder: Path) -> str:
    """Resume or verify the run as the command does, and check what it then says."""
    case = json.loads((folder / "case.json").read_text())
    run = folder / case["action"]
    with plain_errors():
        if case["action"] == "verified":
            return _verify(Path(case["sources"]), run)
        return _resume(Path(case["sources"]), run, case)


def _resume(sources: Path, run: Path, case: dict[str, Any]) -> str:
    _import_sets()
    from evaluation_sets import run as evaluate

    before = {str(path.relative_to(run)) for path in run.rglob("*")}
    summary = evaluate(sources, run, resume=True, retry=case["retry"], ratios=(2.0,))
    new = {str(path.relative_to(run)) for path in run.rglob("*")} - before - KNOWN
    require(not new, f"new files in the run's folder: {sorted(new)}")
    if summary is None:
        require(not case["harmless"], "rows are missing, and the run is not gone on with")
        return "unfinished"
    _check_summary(summary, sources)
    if case["harmless"]:
        same = (run / "results.jsonl").read_bytes() == (sources / "run" / "results.jsonl").read_bytes()
        require(same, "results.jsonl is not what it was before rows were lost or repeated")
    return "resumed"


def _check_summary(summary: Any, sources: Path) -> None:
    """Check that a summary counts no more than was asked, and can be printed at a terminal."""
    from rich.console import Console

    from aviot.evaluation.report import print_summary

    items = len(_read_lines(sources / "items.jsonl"))
    require(summary.items <= items, f"{summary.items} items of {items}")
    require(summary.rows <= items * len(SETTINGS), f"{summary.rows} rows of {items} items and {len(SETTINGS)} settings")
    for measure in summary.measures:
        most = 5 if "score" in measure.name else 1
        require(measure.value is None or 0 <= measure.value <= most, f"{measure.name} is {measure.value}")
        require(measure.counted <= items, f"{measure.name} counts {measure.counted} of {items} items")
        require(measure.setting in SETTINGS, f"there is no setting {measure.setting!r:.60}")
    shown = io.StringIO()
    print_summary(summary, Console(file=shown))
    steering = sorted({c for c in shown.getvalue() if c not in "\n\t" and (c < " " or "\x7f" <= c <= "\x9f")})
    require(not steering, f"characters that steer a terminal, {steering!r}, in the printed summary")


def _verify(sources: Path, run: Path) -> str:
    """Ask two questions again; results that were changed must not hold."""
    _import_sets()
    import torch
    from evaluation_sets import load

    from aviot.evaluation.verify import recorded_config, verify

    before = (sources / "run" / "results.jsonl").read_bytes()
    results = run / "results.jsonl"
    config = recorded_config(run)
    found = verify(config, lambda: load(sources / "model"), torch.device("cpu"), sample=2, seed=0)
    is_same = results.is_file() and results.read_bytes() == before
    summed = json.loads((run / "summary.json").read_bytes()).get("results_sha256")
    told = json.loads((sources / "run" / "summary.json").read_bytes())["results_sha256"]
    require(not found.holds or is_same or summed != told, "changed results hold")
    return "holds" if found.holds else "does not hold"


def errors() -> tuple[type[Exception], ...]:
    """Return what a run that was changed raises; a folder in the place of a file is the system's own error."""
    return Refused, OSError


TARGET = Target(
    name="journals",
    prepare=prepare,
    control=control,
    write=write,
    check=check,
    errors=errors,
    modules=(
        *(
            "aviot.evaluation.run",
            "aviot.evaluation.verify",
            "aviot.evaluation.report",
            "rich.progress",
            "tiny",
            "clips",
        ),
        *("evaluation_sets", "transformers.models.qwen2.modeling_qwen2", "transformers.models.siglip.modeling_siglip"),
        *("aviot.video.files", "transformers.models.auto.tokenization_auto"),
    ),
    changes=("resumed", "resumed/*"),
)
_import_sets()
