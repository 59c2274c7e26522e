"""The model that comes with the package: small enough, complete, and right about what it never saw."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from aviot.bundled import embedded_model
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.utils.journal import read_rows
from aviot_lab.demo_model.accuracy import accuracy
from aviot_lab.demo_model.curriculum import CURRICULUM
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.world import World, WorldConfig

SCENES, MORE_SCENES = 4, 24
REPORT = Path(__file__).parents[3] / "docs" / "reproduction"


def test_it_fits_into_the_package():
    files = [file for file in embedded_model().rglob("*") if file.is_file()]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in files}
    assert not [file for file in files if file.suffix in (".bin", ".pt", ".pkl")]
    assert sum(file.stat().st_size for file in files) <= 16_000_000


def test_it_was_trained_on_the_world_as_it_is():
    """All pieces of its run, which went through to the end."""
    folder = embedded_model()
    log = read_rows(folder / "training.jsonl")
    began = [line for line in log if "began" in line]
    data = data_fingerprint(CURRICULUM, AviotProcessor.from_pretrained(folder).tokenizer)
    assert {line["data"] for line in began} == {data}
    assert [line["ended"] for line in log if "ended" in line][-1] == CURRICULUM.steps
    assert data in (folder / "README.md").read_text(encoding="utf-8")


def test_the_documents_report_is_of_it():
    report = json.loads((REPORT / "report.json").read_text(encoding="utf-8"))
    weights = (embedded_model() / "model.safetensors").read_bytes()
    assert report["models"]["model"]["files"]["model.safetensors"] == sha256(weights).hexdigest()
    assert {model["trained"]["steps"] for model in report["models"].values()} == {CURRICULUM.steps}
    assert (report["setting"], report["split"]) == ("full", "test")


@pytest.mark.untraced  # encodes hundreds of frames
@pytest.mark.parametrize("scenes", [SCENES, pytest.param(MORE_SCENES, marks=pytest.mark.slow)])
def test_most_questions_about_new_combinations_are_answered_right(scenes):
    """Of short videos, left as they are; guessing would be right about one time in three."""
    folder = embedded_model()
    model = AviotForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AviotProcessor.from_pretrained(folder).tokenizer
    whole = ("none", None)
    found = accuracy(
        model, tokenizer, World(WorldConfig()), split="test", scenes=range(scenes), frames=16, settings=[whole]
    )
    answers = [good for family in found[whole].values() for good in family]
    assert len(answers) >= 2 * scenes
    assert sum(answers) / len(answers) >= 0.8
