"""When the question's relevance is evidence of where to look, and when the allocation had better ignore it.

    python benchmarks/evidence.py -o RUN [--split validation] [--scenes 2100] [--device cuda]
    python benchmarks/evidence.py -o TEST --split test --scenes 720 --temperatures 0.4   # 2,000 questions, paired

Every question about a scene is answered with the printed allocation, without relevance (equal budgets), calibrated by
the threshold of the model's config (or --threshold) if there is one, and each of these but equal budgets with softer
temperatures, at ratios 4 and 10; each frame's relevance is recorded. A gate on relevance chooses between the first two
for each question, so accuracy with any gate follows from the journal: the tables at the end have thresholds on the
range over frames and on the deviation between segments' means, overall and for families that change by 1.5 points or
more, and what is right at each range of relevance. Teacher forced. It resumes: batches are in RUN/evidence.jsonl before
the next begins.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from aviot import VideoLM
from aviot.backbones.llava_video.modeling import variant
from aviot.bundled import embedded_model
from aviot.methods.aviot.method import frame_relevance
from aviot.utils.journal import Journal, read_rows
from aviot.utils.machine import commit, machine
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.demo_model.masks import question_means
from aviot_lab.reproduce.statistics import mean_with_interval
from aviot_lab.world import World, WorldConfig

TEMPERATURES = (0.2, 0.4)
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)  # of the questions, to be below a threshold
EDGES = (0, 0.04, 0.08, 0.12, 0.14, 0.16, 0.18, 0.2, 0.25, 0.3, 0.4, 0.6, 0.8, 2.0)  # of ranges of relevance
DIGITS = 4


def models_of(model, temperatures=TEMPERATURES, threshold=None):
    """Return the model with each allocation, sharing its weights."""
    own = model.config.compressor.allocation.evidence_threshold
    constants = {"evidence_threshold": own if threshold is None else threshold}
    rules = ("printed",) if constants["evidence_threshold"] is None else ("printed", "calibrated")
    found = {rule: variant(model, allocation=constants | {"rule": rule}) for rule in rules}
    found["none"] = variant(model, question_allocation=False)
    for temperature in temperatures:
        for rule in rules:
            changed = constants | {"rule": rule, "final_temperature": temperature}
            name = "" if rule == "printed" else f"{rule}, "
            found[f"{name}temperature {temperature:g}"] = variant(model, allocation=changed)
    return found


@torch.no_grad()
def record_of(models, batch, ratios):
    """Return a batch's answers by allocation and ratio, and the relevance of each frame to each question."""
    model = models["printed"]
    path, asked = model.model, batch.conversations
    u = encode(model, asked.plans, asked.videos)
    embeds = model.get_input_embeddings()(asked.ids.to(model.device))
    questions = question_means(embeds, asked.question_mask.to(model.device))
    means = path.prepare(u).for_prompts(tuple(asked.video.tolist())).frame_means
    right = {
        f"{name} {ratio:g}": answer(each, u, asked, ratio=ratio).right.tolist()
        for ratio in ratios
        for name, each in models.items()
    }
    return {
        "scenes": [scene.index for scene, _ in batch.asked],
        "families": [question.family for question in batch.questions],
        "right": {key: [int(good) for good in goods] for key, goods in right.items()},
        "relevance": [[round(one, DIGITS) for one in row] for row in frame_relevance(means, questions).tolist()],
    }


def signals_of(relevance, segments):
    """Return numbers per question that may tell whether there is evidence."""
    rows = np.array(relevance)
    parts = np.stack([part.mean(1) for part in np.array_split(rows, segments, axis=1)], 1)
    spread = np.quantile(rows, 0.95, axis=1) - np.quantile(rows, 0.05, axis=1)
    return {
        "range": rows.max(1) - rows.min(1),
        "range of 90 %": spread,
        "deviation": rows.std(1),
        "segments' range": parts.max(1) - parts.min(1),
        "segments' deviation": parts.std(1),
    }


def report(records, ratios, segments):
    """Yield lines of the tables."""
    scenes = [scene for record in records for scene in record["scenes"]]
    families = np.array([family for record in records for family in record["families"]])
    right = {
        key: np.array([good for record in records for good in record["right"][key]], dtype=float)
        for key in records[0]["right"]
    }
    signals = signals_of([row for record in records for row in record["relevance"]], segments)

    def against_printed(taken, ratio):
        apart = taken - right[f"printed {ratio:g}"]
        found = mean_with_interval(apart.tolist(), scenes, 0)
        span = "" if found["interval"] is None else " [{:+.1f}, {:+.1f}]".format(*(100 * e for e in found["interval"]))
        by_family = {name: 100 * apart[families == name].mean() for name in sorted(set(families))}
        notable = ", ".join(f"{name} {value:+.0f}" for name, value in by_family.items() if abs(value) >= 1.5)
        return f"{100 * taken.mean():5.1f} %, {100 * apart.mean():+.2f}{span}; {notable}"

    yield f"{len(scenes)} questions about {len(set(scenes))} scenes; points against the printed allocation, by family"
    for ratio in ratios:
        for key, good in right.items():
            if key.endswith(f" {ratio:g}"):
                yield f"ratio {ratio:g}  {key:22} {against_printed(good, ratio)}"
        printed, none = right[f"printed {ratio:g}"], right[f"none {ratio:g}"]
        yield f"ratio {ratio:g}  {'better of the two':22} {against_printed(np.maximum(printed, none), ratio)}"
        for name, values in signals.items():
            for share in SHARES:
                threshold = np.quantile(values, share)
                taken = np.where(values < threshold, none, printed)
                yield f"ratio {ratio:g}  {name} < {threshold:.4f} ({share:.0%}) {against_printed(taken, ratio)}"
    yield from by_range(right, families, signals["range"])
    for name, values in signals.items():
        medians = {family: float(np.median(values[families == family])) for family in sorted(set(families))}
        yield f"median of {name}: " + ", ".join(f"{family} {value:.3f}" for family, value in medians.items())


def by_range(right, families, values):
    """Yield what is right with each allocation where the range over frames is alike."""
    for low, high in pairwise(EDGES):
        inside = (values >= low) & (values < high)
        if inside.any():
            shares = ", ".join(f"{key} {100 * good[inside].mean():.1f}" for key, good in right.items())
            when = 100 * (families[inside] == "when").mean()
            yield f"range from {low:g} to {high:g}: {inside.sum()} questions, {when:.0f} % when: {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("-m", "--model", type=Path, help="a checkpoint folder; default: the bundled demo model")
    parser.add_argument("--split", default="validation", choices=("validation", "test"))
    parser.add_argument("--scenes", type=int, default=2100, help="default 2100: about 6,000 questions")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--videos", type=int, default=16, help="at once")
    parser.add_argument("--ratios", type=float, nargs="+", default=[4.0, 10.0])
    parser.add_argument("--temperatures", type=float, nargs="*", default=list(TEMPERATURES))
    parser.add_argument("--threshold", type=float, help="of a calibrated allocation; default: the model's own, if any")
    parser.add_argument("--limit", type=float, default=240, help="seconds after which no batch begins; default 240")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    began, device = time.monotonic(), torch.device(given.device)
    lm = VideoLM.from_pretrained(given.model or embedded_model(), device=given.device)
    model = lm.backbone.model.to(torch.float32 if device.type == "cpu" else torch.bfloat16)
    models = models_of(model, given.temperatures, given.threshold)
    world, writer = World(WorldConfig()), BatchWriter(lm.backbone.tokenizer)
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "evidence.jsonl"
    about = {"split": given.split, "frames": given.frames, "videos": given.videos, "ratios": given.ratios}
    about["dtype"] = str(model.dtype)
    allocation = models.get("calibrated", model).config.compressor.allocation
    about["allocations"], about["threshold"] = sorted(models), allocation.evidence_threshold
    head, *records = read_rows(path) or [about]
    if head != about:
        parser.error(f"{path} is of a run with {head}, not {about}; name another folder")
    with Journal(path, first=about) as journal:
        if not records and not read_rows(path):
            journal.add(about)
        for first in range(given.videos * len(records), given.scenes, given.videos):
            if time.monotonic() - began > given.limit:
                print(f"stopped after {given.limit:g} s at scene {first}; the same command goes on")
                break
            batch = question_batch(
                writer, world, given.split, range(first, min(first + given.videos, given.scenes)), given.frames
            )
            records.append(record_of(models, batch, given.ratios))
            journal.add(records[-1])
    lines = list(report(records, given.ratios, model.config.compressor.segments))
    (given.output / "evidence.txt").write_text("\n".join(lines) + "\n")
    made_by = {"machine": machine(device), "commit": commit(), "questions": lines[0]}
    (given.output / "about.json").write_text(json.dumps(about | made_by) + "\n")
    print("\n".join(line for line in lines if " < " not in line or " range < " in line))  # the file has all signals


if __name__ == "__main__":
    main()
