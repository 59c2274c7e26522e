"""A local task of lmms-eval over real videos, a tiny model that answers in letters, and the harness's own command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from tiny import make_start

from aviot.evaluation.item import CHOICE_INSTRUCTION
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot_lab.world import World, WorldConfig, save

LOUD = 40.0
BIN = Path(sys.executable).parent
TASK = """\
dataset_path: json
dataset_kwargs:
  data_files: {{test: {records}}}
task: aviot_local
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: !function utils.doc_to_text
doc_to_target: answer
process_results: !function utils.process_results
generation_kwargs: {{max_new_tokens: 1, temperature: 0, do_sample: false}}
metric_list:
  - {{metric: accuracy, aggregation: mean, higher_is_better: true}}
"""
UTILS = f"""\
from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

LETTERS = ["A", "B", "C", "D"]


def doc_to_visual(doc):
    return [doc["path"]]


def doc_to_text(doc):
    options = [f"{{letter}}. {{option}}" for letter, option in zip(LETTERS, doc["options"])]
    return "\\n".join([doc["question"], *options, "{CHOICE_INSTRUCTION}"])


def process_results(doc, results):
    return {{"accuracy": float(extract_mcq_answer(results[0], choices=LETTERS) == doc["answer"])}}
"""


def make_letter_model(folder: Path) -> Path:
    """A tiny model whose next token is always one of the letters A to D, by what it has seen."""
    make_start(folder)
    model, processor = AviotForConditionalGeneration.from_pretrained(folder), AviotProcessor.from_pretrained(folder)
    first, second = torch.randn(2, model.lm_head.in_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in model.model.language_model.layers:
            for weight in layer.self_attn.parameters():
                weight.mul_(LOUD)  # so that what is attended to outweighs the last token
        model.lm_head.weight.zero_()  # any other token gets 0, and of a number and its negative one is above it
        for letter, row in zip("ABCD", (first, -first, second, -second), strict=True):
            (token,) = processor.tokenizer.encode(letter, add_special_tokens=False)
            model.lm_head.weight[token] = row
    model.save_pretrained(folder)
    return folder


def make_task(folder: Path, scenes: int = 6, questions: int = 3) -> list[dict]:
    """Videos of the synthetic world, items for `aviot evaluate`, and a task of lmms-eval with the same records."""
    world = World(WorldConfig(seed=0, frames=(16,)))
    items = []
    for number in range(scenes):
        scene = world.scene("test", number)
        save(scene, folder / f"{number}.mp4")
        for turn in range(questions):
            asked = world.question(scene, turn)
            told = {"question": asked.text, "options": list(asked.options), "answer": asked.letter}
            items.append({"id": f"{number}-{turn}", "video": f"{number}.mp4"} | told)
    write_task(folder, items)
    return items


def write_task(folder: Path, items: list[dict]) -> None:
    """The two files a task is made of, its records, and the same as items."""
    records = [item | {"path": str(folder / item["video"])} for item in items]
    (folder / "task").mkdir(exist_ok=True)
    for path, rows in ((folder / "items.jsonl", items), (folder / "records.jsonl", records)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task" / "aviot_local.yaml").write_text(TASK.format(records=folder / "records.jsonl"))
    (folder / "task" / "utils.py").write_text(UTILS)


def lmms_eval(folder: Path, out: Path, model_args: str, *words: str, processes: int = 1, model: str = "aviot") -> dict:
    """Scores and replies of the command that a user types, with the network off."""
    several = ["accelerate", "launch", "--cpu", "--num_processes", str(processes), "-m", "lmms_eval"]
    start = [str(BIN / "lmms-eval")] if processes == 1 else [str(BIN / several[0]), *several[1:]]
    asked = ["--model", model, "--model_args", model_args, "--tasks", "aviot_local", "--device", "cpu"]
    where = ["--include_path", str(folder / "task"), "--output_path", str(out), "--log_samples"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, *asked, *where, *words], env=os.environ | offline, cwd=folder, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    results = next(out.rglob("*_results.json"), None)  # the command's exit code is 0 also where it failed
    assert results is not None, said[-8000:]
    (samples,) = out.rglob("*_samples_aviot_local.jsonl")
    rows = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda row: row["doc_id"])
    score = json.loads(results.read_text())["results"]["aviot_local"]["accuracy,none"]
    tokens = [row["token_counts"][0] for row in rows]
    return {"score": score, "replies": [row["filtered_resps"] for row in rows], "tokens": tokens, "said": said}
