"""`aviot warmup` on a machine without a GPU, and the work that it does on one with."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from aviot import VideoLM
from aviot.cli import app
from aviot.commands.warmup import NOTHING, warm
from aviot.models import AviotForConditionalGeneration, AviotProcessor

CHECKPOINT = Path(__file__).parent / "golden" / "checkpoint"


def test_on_a_cpu_there_is_nothing_to_compile():
    ran = CliRunner().invoke(app, ["warmup", "--device", "cpu"])
    assert ran.exit_code == 0
    assert ran.stdout == ""
    assert NOTHING in " ".join(ran.stderr.split())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--ratio", "1"], "ratio must be a finite number above 1"),
        (["--frames", "0"], "frames must be a whole number of at least 1"),
        (["--method", "avoit"], "got 'avoit'"),
        (["--model", "./none"], "no such folder"),
    ],
)
def test_mistakes_are_refused(options, what):
    ran = CliRunner().invoke(app, ["warmup", *options])
    assert ran.exit_code == 2
    assert what in " ".join(ran.stderr.split())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_video_of_the_given_length_is_compressed(device):
    model = AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval().to(torch.device(device))
    lm = VideoLM(model, AviotProcessor.from_pretrained(CHECKPOINT))
    assert warm(lm, 12, 4.0, "aviot") > 0
