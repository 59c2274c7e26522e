"""A run of the demo model on disk: what was changed is not loaded, and one process writes."""

import json

import pytest
import torch

from aviot.utils.files import folder_lock
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.curriculum import CURRICULUM
from aviot_lab.demo_model.optimizers import optimizers_of
from aviot_lab.demo_model.state import STATE, load_state, save_state
from aviot_lab.demo_model.train import TrainOptions, train
from aviot_lab.demo_model.training_model import TrainingModel


@pytest.fixture
def saved(tmp_path, tokenizer, narrow):
    training_model = TrainingModel(new_model(tokenizer, seed=5), tokenizer, "aviot")
    optimizers = optimizers_of(training_model)
    save_state(tmp_path, training_model, optimizers, 40)
    return tmp_path, training_model, optimizers


def test_a_flipped_bit_is_found(saved):
    folder, training_model, optimizers = saved
    assert load_state(folder, training_model, optimizers) == 40
    file = folder / json.loads((folder / STATE).read_text())["files"][-1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match=rf"the run in .* cannot be read \(ValueError: {file.name} was changed since"):
        load_state(folder, training_model, optimizers)


def test_what_an_earlier_version_wrote_is_said_to_be_unverified(saved, caplog):
    folder, training_model, optimizers = saved
    state = json.loads((folder / STATE).read_text())
    del state["sha256"]
    (folder / STATE).write_text(json.dumps(state))
    assert load_state(folder, training_model, optimizers) == 40
    assert "has no hashes: its files are taken as they are" in caplog.text


def test_a_second_run_in_a_folder_is_refused(tmp_path):
    with folder_lock(tmp_path, ""), pytest.raises(ValueError, match="another process is writing into"):
        train(tmp_path, CURRICULUM, TrainOptions(device=torch.device("cpu")))
