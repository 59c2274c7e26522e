"""One step on the golden checkpoint: its losses, and gradients for exactly the weights that the paper trains."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tiny import GOLDEN, config

from aviot.data import BatchLayout, Clip, Corpus
from aviot.training.config_files import Parallelism
from aviot.training.datasets import training_data
from aviot.training.loss import Totals
from aviot.training.model_setup import load_model, load_processor
from aviot.training.run import training_arguments
from aviot.training.trainer import AviotTrainer

EXPECTED = json.loads((GOLDEN / "expected.json").read_text())["training"]
TRAINED = (  # the paper's list, by the names in this package
    "model.language_model.",
    "lm_head.",
    "model.connector.projector.",
    "model.connector.row_separator",
    "model.position.",
    "model.compressor.region_position.",
    "model.question_projection.",
    "model.compressor.metric.",
    "model.compressor.gate.",
)
COMPRESSOR = ("model.position.", "model.question_projection.", "model.compressor.")


def trainer_of(made, **changes):
    chosen = config(made, model=str(GOLDEN), optimization={"global_batch": 1}, **changes)
    model, processor = load_model(chosen, None), load_processor(chosen, None)
    layout = BatchLayout(1)
    data = training_data(chosen, Corpus.open(chosen.data), model, processor, layout)
    arguments = training_arguments(chosen, Parallelism(), layout)
    return AviotTrainer(model, arguments, data, identity={})


def golden_batch():
    stored = load_file(GOLDEN / "expected.safetensors")
    labels = stored["input_ids"].clone()
    labels[:, :-8] = -100
    return {
        "input_ids": stored["input_ids"],
        "attention_mask": torch.ones_like(labels),
        "labels": labels,
        "question_span": stored["question_token_ranges"],
        "video_index": torch.tensor([0]),
        "pixel_values": stored["pixel_values"],
        "frame_counts": torch.tensor([25]),
        "clips": (Clip(tuple(range(25)), 25.0, None, None, None),),
        "ratios": [4.0],
        "ids": ["golden"],
        "where": ["expected.safetensors"],
    }


@pytest.mark.parametrize("checkpointing", [True, False])
def test_one_step_gives_the_golden_losses(made, checkpointing):
    trainer = trainer_of(made, gradient_checkpointing=checkpointing)
    trainer.state.global_step = 500  # the step of the published losses, after the warm-ups
    trainer.model.train()
    loss = trainer.compute_loss(trainer.model, golden_batch(), num_items_in_batch=Totals(tokens=8, examples=1))
    line = trainer._meters.read(lambda values: values[None], torch.device("cpu"), 0)
    assert line["lm_loss"] == pytest.approx(EXPECTED["lm_loss"], rel=1e-5)
    assert line["transport_loss"] == pytest.approx(EXPECTED["transport_loss"], rel=1e-5)
    assert loss.item() == pytest.approx(EXPECTED["lm_loss"] + EXPECTED["transport_loss"], rel=1e-5)
    loss.backward()
    named = dict(trainer.model.named_parameters())
    reached = {name for name, weight in named.items() if weight.grad is not None and weight.grad.abs().max() > 0}
    zero = {"model.compressor.metric.embed.3.bias"}  # its gradient is zero in exact arithmetic
    assert reached | zero == {name for name in named if name.startswith(TRAINED)}
    assert {name for name, weight in named.items() if weight.requires_grad} == reached | zero


def test_the_compressor_stage(made):
    trainer = trainer_of(made, stage="compressor")
    trainer.model.train()
    trainer.state.global_step = 500
    trainer.compute_loss(trainer.model, golden_batch(), num_items_in_batch=Totals(8, 1)).backward()
    named = dict(trainer.model.named_parameters())
    chosen = {name for name in named if name.startswith(COMPRESSOR)}
    assert {name for name, weight in named.items() if weight.requires_grad} == chosen
    assert {name for name, weight in named.items() if weight.grad is not None} == chosen


def test_a_micro_batch_has_its_share_of_the_loss(made):
    trainer = trainer_of(made)
    whole = trainer.compute_loss(trainer.model, golden_batch(), num_items_in_batch=Totals(8, 1))
    part, out = trainer.compute_loss(trainer.model, golden_batch(), True, Totals(tokens=80, examples=4))
    assert part.item() == pytest.approx((out.lm_loss / 10 + out.transport_loss / 4).item())
    assert whole.item() == pytest.approx((out.lm_loss + out.transport_loss).item())
