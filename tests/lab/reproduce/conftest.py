import copy
import json

import pytest
import torch
from narrow import narrow_config

from aviot.models import AviotForConditionalGeneration
from aviot_lab.demo_model.architecture import small_processor


@pytest.fixture(scope="session")
def config(tokenizer):
    return narrow_config(tokenizer)


@pytest.fixture(scope="session")
def model(config):
    """Untrained, but for parts that start from zero, which would hide what they do."""
    torch.manual_seed(0)
    model = AviotForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.model.position.proj.weight.normal_(std=0.3)
        model.model.compressor.region_position.weight.normal_(std=0.3)
    return model


@pytest.fixture(scope="session")
def write_log():
    """Writes beside a folder's weights that they learnt with a compressor up to a step."""

    def write(folder, compressor, steps):
        lines = {"began": 20, "compressor": compressor}, {"ended": steps, "seconds": 1.0}
        (folder / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return write


@pytest.fixture(scope="session")
def folder(model, tokenizer, write_log, tmp_path_factory):
    """The model as a checkpoint, and beside it as "tuned" one whose words have moved a little."""
    target = tmp_path_factory.mktemp("weights") / "model"
    moved = copy.deepcopy(model)
    with torch.no_grad():
        moved.get_input_embeddings().weight.add_(0.01)
    for each, place in ((model, target), (moved, target.with_name("tuned"))):
        each.save_pretrained(place)
        small_processor(tokenizer).save_pretrained(place)
    write_log(target, "aviot", 40)
    write_log(target.with_name("tuned"), "uniform", 40)
    return target
