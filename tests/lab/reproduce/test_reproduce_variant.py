"""A model with other switches of its compressor is the model that would be built with them, on the same weights."""

import copy

import pytest
import torch

from aviot.backbones.llava_video.modeling import variant
from aviot.models import AviotForConditionalGeneration

SWITCHES = [
    {"question_cost": False},
    {"question_allocation": False},
    {"question_cost": False, "question_allocation": False},
    {"granularities": "global"},
    {"fusion": "equal"},
    {"pilot": "unbalanced"},
    {"cost_normalization": "unit"},
]


def tokens(model):
    """What the decoder reads of a video with a sudden change, compressed for a question near its end."""
    g = torch.Generator().manual_seed(0)
    u = torch.randn(1, 24, 729, 12, generator=g)
    u[:, 18:] += 3 * torch.randn(12, generator=g)
    question = torch.randn(1, 16, generator=g)
    with torch.no_grad():
        made = model.model.compress(model.model.prepare(u), question, budget=2.0)
        return model.model.project(made.features)


@pytest.fixture(scope="module")
def own(model):
    return tokens(model)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_a_variant_is_the_model_built_with_its_switches(model, config, own, switches):
    changed = copy.deepcopy(config)
    changed.compressor_config |= switches
    built = AviotForConditionalGeneration(changed).eval()
    built.load_state_dict(model.state_dict())
    other = variant(model, **switches)
    found = tokens(other)
    assert torch.equal(found, tokens(built))
    assert not torch.equal(found, own)
    assert other.config.compressor == changed.compressor


def test_a_variant_shares_weights_and_leaves_its_model_alone(model, own):
    other = variant(model, fusion="equal")
    mine, theirs = (dict(each.named_parameters()) for each in (model, other))
    assert mine.keys() == theirs.keys()
    assert all(mine[name] is theirs[name] for name in mine)
    assert model.config.compressor.fusion == "adaptive"
    assert torch.equal(tokens(model), own)


def test_a_variants_allocation_keeps_the_models_other_constants(model):
    known = variant(model, allocation={"evidence_threshold": 2.5, "relevance_weight": 0.5})
    calibrated = variant(known, allocation="calibrated")
    constants = calibrated.model.compressor.config.allocation
    assert (constants.rule, constants.evidence_threshold, constants.relevance_weight) == ("calibrated", 2.5, 0.5)
    assert torch.equal(tokens(calibrated), tokens(variant(model, question_allocation=False)))  # no cosines range so far
    assert not torch.equal(tokens(calibrated), tokens(known))


def test_what_needs_other_weights_is_no_variant(model):
    with pytest.raises(ValueError, match=r"a variant changes question_cost, .*, got cost_dim; build a model"):
        variant(model, cost_dim=16)
