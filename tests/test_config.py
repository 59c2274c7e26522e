"""The config: the paper's values, validated once."""

import dataclasses
import json

import numpy as np
import pytest

from aviot import CompressorConfig
from aviot.config import GateConfig, TransportConfig, level_names


def test_defaults_are_the_papers():
    config = CompressorConfig()
    assert (config.dim, config.cost_dim, config.grid, config.segments) == (1152, 256, (27, 27), 4)
    assert [(lv.name, lv.regions, lv.epsilon, lv.rounds, lv.parent_weight) for lv in config.levels] == [
        ("global", (1, 1), 0.10, 5, 0.0),
        ("medium", (3, 3), 0.12, 2, 0.50),
        ("local", (9, 9), 0.15, 1, 0.25),
    ]
    assert config.transport == TransportConfig(updates=20, source_relaxation=0.5, target_relaxation=5.0)
    assert config.gate == GateConfig(hidden=32, temperature=0.05, global_floor=0.2)
    assert (config.fractions, config.stage_multiple, config.warmup_steps) == ((0.75, 0.5, 0.25), 8, 500)


def test_json_round_trip():
    config = CompressorConfig(dim=8, cost_dim=4, grid=(4, 4), regions=((1, 1), (2, 2)), pilot="unbalanced")
    assert CompressorConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_configs_from_before_these_switches_mean_what_they_did():
    values = CompressorConfig().to_dict()
    del values["cost_normalization"], values["transport"]["unit_cost"]
    for name in ("rule", "evidence_threshold", "evidence_quantile", "evidence_rate"):
        del values["allocation"][name]
    assert CompressorConfig.from_dict(values) == CompressorConfig()
    assert CompressorConfig().allocation.rule == CompressorConfig().cost_normalization == "printed"


def test_a_rule_for_the_allocation_keeps_its_constants():
    config = CompressorConfig(allocation={"relevance_weight": 0.5, "evidence_threshold": 0.2})
    changed = config.switched(allocation="calibrated", fusion="equal")
    assert changed.allocation == dataclasses.replace(config.allocation, rule="calibrated")
    assert (changed.switch("allocation"), changed.switch("fusion")) == ("calibrated", "equal")
    assert config.switched(allocation="printed") == config
    assert CompressorConfig(allocation="calibrated").allocation.rule == "calibrated"


def test_numbers_of_numpy_become_plain():
    config = CompressorConfig(dim=np.int64(8), grid=np.array([4, 4]), regions=[[1, 1]], epsilons=(np.float32(0.5),))
    assert json.loads(json.dumps(config.to_dict()))["epsilons"] == [0.5]
    assert type(config.dim) is int


def test_longer_chains_repeat_the_last_value():
    config = CompressorConfig(regions=((1, 1), (3, 3), (9, 9), (27, 27)))
    assert config.levels[3].epsilon == 0.15
    assert config.levels[3].parent_weight == 0.25
    assert level_names(config.regions) == ("global", "3x3", "9x9", "27x27")


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CompressorConfig().dim = 3


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"dim": 0}, "dim must be a whole number of at least 1, got 0"),
        ({"dim": 2.5}, "dim must be a whole number"),
        ({"cost_dim": 7}, "cost_dim must be even"),
        ({"grid": (27,)}, "grid must be two positive whole numbers"),
        ({"grid": 27}, "grid must be a tuple, got 27"),
        ({"regions": ()}, "must start with"),
        ({"regions": ((3, 3),)}, "must start with"),
        ({"regions": ((1, 1), (3,))}, r"must be \(rows, columns\)"),
        ({"regions": ((1, 1), (28, 1))}, "more cells than the grid"),
        ({"regions": ((1, 1), (9, 9), (3, 3))}, "coarse to fine"),
        ({"regions": ((1, 1), (3, 3), (3, 3))}, "coarse to fine"),
        ({"epsilons": ()}, "epsilons is empty"),
        ({"epsilons": (0.0,)}, "epsilons must be positive"),
        ({"rounds": (0,)}, "rounds must hold positive whole numbers"),
        ({"parent_weights": (2.0,)}, r"parent_weights must lie in \[0, 1\]"),
        ({"fractions": (1.5,)}, "fractions must lie strictly between"),
        ({"fractions": (0.25, 0.5)}, "fractions must decrease"),
        ({"fractions": ("a",)}, "fractions must lie"),
        ({"epsilons": ("a",)}, "epsilons must be positive"),
        ({"epsilons": (True,)}, "epsilons must be positive"),
        ({1: 3}, "has no field '1'"),
        ({"fusion": "sum"}, "fusion must be one of 'adaptive', 'equal', got 'sum'"),
        ({"pilot": None}, "pilot must be one of"),
        ({"granularities": "local"}, "granularities must be one of 'all', 'global'"),
        ({"cost_normalization": "sum"}, "cost_normalization must be one of 'printed', 'unit', got 'sum'"),
        ({"transport": {"unit_cost": 0}}, "unit_cost must be a positive number"),
        ({"question_cost": "no"}, "question_cost must be True or False"),
        ({"allocation": "gated"}, "rule must be one of 'printed', 'calibrated', got 'gated'"),
        ({"allocation": {"evidence_threshold": -0.1}}, "evidence_threshold must be at least 0, as a range is, or None"),
        ({"allocation": {"evidence_threshold": float("nan")}}, "evidence_threshold must be a finite number"),
        ({"allocation": {"evidence_quantile": 1.5}}, r"evidence_quantile must lie in \[0, 1\]"),
        ({"allocation": {"evidence_quantile": 0}}, "evidence_quantile must be above 0; with it at 0 relevance always"),
        ({"allocation": {"evidence_rate": -1}}, r"evidence_rate must lie in \[0, 1\]"),
        ({"transport": {"updates": 0}}, "updates must be a whole number"),
        ({"transport": {"update": 3}}, "transport has no field 'update'; its fields are updates"),
        ({"transport": 3}, "transport must be a TransportConfig or a mapping"),
        ({"transport": {"stabilizer": float("nan")}}, "stabilizer must be a positive number"),
        ({"gate": {"global_floor": 1.5}}, r"global_floor must lie in \[0, 1\]"),
        ({"objective": {"balance_weight": float("inf")}}, "balance_weight must be a finite number"),
        ({"depth": 3}, "CompressorConfig has no field 'depth'"),
        ({"rounds": (10**9, 1)}, "rounds must hold at most 1,000 each, got 1,000,000,000"),
        ({"rounds": (1000,), "transport": {"updates": 1000}}, "rounds times updates must be at most 20,000 per level"),
        ({"rounds": [1] * 10**6}, "rounds must hold at most 8 values, got 1,000,000"),
        ({"fractions": [0.5] * 10**6}, "fractions must hold at most 64 values, got 1,000,000"),
        ({"transport": {"updates": 10**18}}, "updates must be at most 10,000, got 1,000,000,000,000,000,000"),
        ({"segments": 10**9}, "segments must be at most 65,536"),
        ({"dim": 10**9}, "dim must be at most 65,536"),
        ({"cost_dim": 10**9}, "cost_dim must be at most 65,536"),
        ({"grid": (10**6, 10**6)}, "grid must have at most 1,024 patches along a side"),
        ({"position": {"bands": 10**9}}, "bands must be at most 64"),
        ({"gate": {"hidden": 10**9}}, "hidden must be at most 65,536"),
    ],
)
def test_mistakes_are_named(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        CompressorConfig.from_dict(values)
