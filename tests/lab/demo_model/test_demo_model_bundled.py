"""The bundled model and its twin, the yardstick: small enough, complete, and right about what they never saw."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from aviot.bundled import embedded_model
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.session import VideoLM
from aviot.utils.journal import read_rows
from aviot_lab.demo_model.accuracy import accuracy
from aviot_lab.demo_model.curriculum import CURRICULUM, YARDSTICK
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.field.run import was_trained
from aviot_lab.field.yardstick import yardstick_folder
from aviot_lab.world import World, WorldConfig

SCENES, MORE_SCENES = 4, 24
REPORT = Path(__file__).parents[3] / "docs" / "reproduction"
MODELS = pytest.mark.parametrize(
    ("folder", "curriculum"),
    [
        pytest.param(embedded_model(), CURRICULUM, id="bundled"),
        pytest.param(yardstick_folder(), YARDSTICK, id="yardstick"),
    ],
)


@MODELS
def test_it_is_small_and_complete(folder, curriculum):
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in files}
    assert not [file for file in files if file.suffix in (".bin", ".pt", ".pkl")]
    assert sum(file.stat().st_size for file in files) <= 16_000_000


@MODELS
def test_it_was_trained_on_the_world_as_it_is(folder, curriculum):
    """All pieces of its run, which went through to the end."""
    log = read_rows(folder / "training.jsonl")
    began = [line for line in log if "began" in line]
    data = data_fingerprint(curriculum, AviotProcessor.from_pretrained(folder).tokenizer)
    assert {line["data"] for line in began} == {data}
    assert [line["ended"] for line in log if "ended" in line][-1] == curriculum.steps
    assert data in (folder / "README.md").read_text(encoding="utf-8")


def test_the_yardstick_was_never_taught_with_mixtures():
    folder = yardstick_folder()
    assert not was_trained(VideoLM.from_pretrained(folder, device="cpu"), folder)
    assert was_trained(VideoLM.from_pretrained(embedded_model(), device="cpu"), embedded_model())
    tasks = {line["task"] for line in read_rows(folder / "training.jsonl") if "task" in line}
    assert tasks == {"patches", "pictures", "whole", "dropped"}


def test_the_documents_report_is_of_it():
    report = json.loads((REPORT / "report.json").read_text(encoding="utf-8"))
    weights = (embedded_model() / "model.safetensors").read_bytes()
    assert report["models"]["model"]["files"]["model.safetensors"] == sha256(weights).hexdigest()
    assert {model["trained"]["steps"] for model in report["models"].values()} == {CURRICULUM.steps}
    assert (report["setting"], report["split"]) == ("full", "test")


@pytest.mark.untraced  # encodes hundreds of frames
@pytest.mark.parametrize(
    ("folder", "scenes"),
    [
        (embedded_model(), SCENES),
        pytest.param(embedded_model(), MORE_SCENES, marks=pytest.mark.slow),
        pytest.param(yardstick_folder(), MORE_SCENES, marks=pytest.mark.slow),
    ],
)
def test_most_questions_about_new_combinations_are_answered_right(folder, scenes):
    """Of short videos, left as they are; guessing would be right about one time in three."""
    model = AviotForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AviotProcessor.from_pretrained(folder).tokenizer
    whole = ("none", None)
    found = accuracy(
        model, tokenizer, World(WorldConfig()), split="test", scenes=range(scenes), frames=16, settings=[whole]
    )
    answers = [good for family in found[whole].values() for good in family]
    assert len(answers) >= 2 * scenes
    assert sum(answers) / len(answers) >= 0.8
