"""Export of a training run as a checkpoint.

python -m aviot_lab.demo_model.export RUN FOLDER
"""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from aviot.backbones.checkpoints.shards import SINGLE
from aviot.utils.files import atomic_folder, check_folder
from aviot.utils.journal import Row, read_rows
from aviot.utils.machine import commit, versions
from aviot_lab.demo_model.architecture import small_processor
from aviot_lab.demo_model.curriculum import CURRICULA, Curriculum, Phase
from aviot_lab.demo_model.families import family_of
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.demo_model.log import CURVES, LOG, finished_pieces
from aviot_lab.demo_model.networks import configure, new_network
from aviot_lab.demo_model.qwen import save_processing
from aviot_lab.demo_model.state import load_compressor, load_weights

LARGEST = 16_000_000  # bytes of weights in the package
CARD = "README.md"
TITLE = "# The small model of AVIOT"
KINDS = {"llava": "the 7B's", "qwen": "Qwen2-VL's"}
YARDSTICKS = {
    "yardstick": (
        "",
        "**A yardstick for methods that need no training**: a twin of the bundled demo model, by the same recipe",
        "and steps, but never taught with AVIOT's mixtures. In the last phase tokens were dropped at random instead,",
        "one by one, in whole frames or in blocks, 0 to 95 % of them. Its parts for AVIOT are untrained.",
    ),
    "adapted": (
        "",
        "**A provisional yardstick for methods that need no training**: the bundled demo model's weights, which",
        "*were* taught with AVIOT's mixtures, fine-tuned for a short time on videos with tokens dropped at random (one",
        "by one, in whole frames or in blocks, 0 to 95 % of them). It is not the twin that has never seen a mixture,",
        "which `--curriculum yardstick` trains, and it may still favour AVIOT and methods that average tokens.",
    ),
}
"""Paragraphs of the card about what a model is for, by its curriculum."""


def export(run: Path, target: Path, curriculum: Curriculum | None = None) -> None:
    """Write weights in bfloat16, configurations, tokenizer, processor, the run's log and a model card.

    The target must be new, empty, or an earlier export. The default curriculum is the one that the log names.
    """
    _check_target(target)
    log = read_rows(run / LOG)
    curriculum = curriculum or CURRICULA[_curriculum_of(log)]
    architecture = _first(log).get("architecture", "llava")
    tokenizer, model = new_network(run, architecture, curriculum.seed)
    step = load_weights(run, model, "model.")
    configure(model, load_compressor(run), {})
    model = model.to(torch.bfloat16)
    size = sum(weight.nbytes for weight in model.parameters())
    if size > LARGEST:
        raise ValueError(
            f"the weights take {size:,} bytes, the package has room for {LARGEST:,}; make the model smaller"
        )
    data = data_fingerprint(curriculum, tokenizer, family_of(model, tokenizer))
    card = _card(log, curriculum, data, step, size)
    with atomic_folder(target) as place:
        model.save_pretrained(place)
        (place / SINGLE).chmod((place / "config.json").stat().st_mode)  # safetensors writes 0600
        if architecture == "qwen":
            save_processing(tokenizer, place)
        else:
            small_processor(tokenizer).save_pretrained(place)
        if log:
            shutil.copyfile(run / LOG, place / CURVES)
        (place / CARD).write_text(card, encoding="utf-8")


def _check_target(target: Path) -> None:
    check_folder(target, "name a folder for the model")
    card = target / CARD
    exported = card.is_file() and TITLE in card.read_text(encoding="utf-8", errors="replace")
    if target.is_dir() and any(target.iterdir()) and not exported:
        raise ValueError(f"{target} has files that are not an earlier export; name a new folder")


def _card(log: Sequence[Row], curriculum: Curriculum, data: str, step: int, size: int) -> str:
    kind = KINDS[_first(log).get("architecture", "llava")]
    lines = [
        "---",
        "library_name: aviot",
        "license: apache-2.0",
        "pipeline_tag: video-text-to-text",
        "---",
        TITLE,
        f"A video language model of {kind} classes, a few hundred channels wide, for trying AVIOT out and for",
        "repeating the paper's experiments. **It knows its own world and nothing else**: ten shapes in ten colours",
        "that stand, move and change (`docs/world.md`). Of any other video, and to any other question, its answers",
        "mean nothing.",
        *YARDSTICKS.get(_curriculum_of(log), ()),
        "",
        f"{size:,} bytes of weights in bfloat16.",
        "",
        "## Training",
        f"`python -m aviot_lab.demo_model.train RUN{_options(log)}`, {step:,} steps done of {curriculum.steps:,};",
        f"weights start from {_origin(log, curriculum)}. Data: the world of seed {curriculum.seed}, split `train`,",
        "drawn while training; nothing else was seen. Questions of `validation` and `test` are about combinations that",
        "no question of training has.",
        "",
        *_pieces(log, data),
        "",
        "Practice: of the steps, those that ask of some families alone.",
        "",
        "| phase | steps | one of these a step (videos x frames) | learning rate | practice |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {phase.task} | {phase.steps:,} | {', '.join(f'{n} x {frames}' for n, frames in phase.batches)} "
            f"| {phase.rates[0]:g} to {phase.rates[1]:g} | {_practice(phase)} |"
            for phase in curriculum.phases
        ),
        "",
        "The last line that the run logged of each phase (means over the steps since the line before):",
        "",
        *_last_lines(log),
        "",
        "## Held-out questions answered right",
        "Split `validation`, at the end of the run; open questions and such with options in turn.",
        "",
        *_held_out(log),
        "",
        "## Exported with",
        f"commit {commit() or 'unknown'}; " + ", ".join(f"{name} {number}" for name, number in versions().items()),
    ]
    return "\n".join(lines) + "\n"


def _practice(phase: Phase) -> str:
    return f"{phase.practice:.0%}: {', '.join(phase.practised)}" if phase.practice else "none"


def _first(log: Sequence[Row]) -> Row:
    """Return the first line of the run's first finished piece."""
    return next((began for began, _ in finished_pieces(log)), {})


def _curriculum_of(log: Sequence[Row]) -> str:
    return str(_first(log).get("curriculum", "demo"))


def _origin(log: Sequence[Row], curriculum: Curriculum) -> str:
    weights = _first(log).get("weights")
    return f"seed {curriculum.seed}" if weights is None else f"a checkpoint's (SHA-256 {str(weights)[:12]})"


def _options(log: Sequence[Row]) -> str:
    """Return the options that the run was started with."""
    first = _first(log)
    options = {"--start": first.get("start"), "--compressor": first.get("compressor")}
    options |= {
        "--architecture": first.get("architecture"),
        "--curriculum": first.get("curriculum"),
        "--weights": "CHECKPOINT" if first.get("weights") else None,
        "--switches": first.get("switches") or None,
    }
    return "".join(
        f" {name} {value}" for name, value in options.items() if value not in (None, "aviot", "llava", "demo", "none")
    )


def _pieces(log: Sequence[Row], data: str) -> Iterator[str]:
    """Yield machine and time of every piece of the run."""
    pieces = finished_pieces(log)
    if not pieces:
        yield "Where and for how long is not in the log."
        return
    yield f"{sum(ended['seconds'] for _, ended in pieces):,.0f} s in all, in {len(pieces)} piece(s):"
    for began, ended in pieces:
        yield (
            f"- from step {began['began']:,} to {ended['ended']:,} in {ended['seconds']:,.0f} s "
            f"on {began['machine']['device']}, torch {began['versions']['torch']}, "
            f"commit {began['commit'] or 'unknown'}, data {began['data'][:16]}"
        )
    fingerprint = pieces[-1][0]["data"]
    yield (
        f"\nThe data's fingerprint (`aviot_lab.demo_model.fingerprint`) is {fingerprint}; the curves are in `{CURVES}`."
    )
    if fingerprint != data:
        yield f"**The curriculum or the world has changed since**: the table below is of {data[:16]}."
    elif any(began["data"] != data for began, _ in pieces):
        yield "The curriculum or the world changed from one piece to another: the table below is the last one's."


def _last_lines(log: Sequence[Row]) -> Iterator[str]:
    last = {line["task"]: line for line in log if "task" in line}
    for task, line in last.items():
        numbers = {name: value for name, value in line.items() if name not in ("task", "step")}
        listed = ", ".join(f"{name} {value:g}" for name, value in numbers.items() if not name.endswith("_ms"))
        yield f"- {task}, step {line['step']:,}: {listed}"
    if not last:
        yield "The run has no log."


def _held_out(log: Sequence[Row]) -> Iterator[str]:
    evaluated = [line for line in log if "questions" in line]
    if not evaluated:
        yield "The run has no such figures."
        return
    yield "| step | frames | compressor | ratio | questions | right |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for line in evaluated:
        if line["step"] == evaluated[-1]["step"]:
            ratio = "" if line["ratio"] is None else f"{line['ratio']:g}"
            yield (
                f"| {line['step']:,} | {line['frames']} | {line['compressor']} | {ratio} | {line['questions']} "
                f"| {line['right']:.1%} |"
            )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run of aviot_lab.demo_model.train")
    parser.add_argument("folder", type=Path, help="the model folder to write")
    given = parser.parse_args()
    try:
        export(given.run, given.folder)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
