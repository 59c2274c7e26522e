"""The recorded prompts are those that the installed lmms-eval gives today."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("lmms_eval", reason="lmms-eval wants an environment of its own: make test-lmms-eval")
os.environ.setdefault("HF_HOME", str(Path(__file__).parent))
from harness_tasks import prompt_of

pytestmark = pytest.mark.lmms_eval
RECORDED = json.loads((Path(__file__).parents[1] / "evaluation" / "task_prompts.json").read_text())["prompts"]


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: entry["task"])
def test_the_harness_says_what_was_recorded(entry):
    assert prompt_of(entry["task"], entry["record"]) == entry["prompt"]
