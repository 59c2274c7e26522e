"""Shares, differences and distances, against numbers worked out by hand."""

import pytest

from aviot.config import CompressorConfig
from aviot.reproduce.rows import ABLATION, aviot, needed
from aviot.reproduce.separation import rotated
from aviot.reproduce.size import SIZES, size_named
from aviot.reproduce.statistics import Answered

RECORDS = [
    {"scenes": [0, 0, 1], "families": ["colour", "when", "when"], "right": {"a": [1, 1, 0], "b": [0, 1, 0]}},
    {"scenes": [2, 2], "families": ["when", "colour"], "right": {"a": [1, 0], "b": [0, 0]}},
]


def test_shares_have_wilsons_interval():
    found = Answered.of(RECORDS).share("a")
    assert (found["right"], found["questions"], found["accuracy"]) == (3, 5, 0.6)
    assert found["interval"] == pytest.approx((0.2307, 0.8824), abs=1e-4)
    families = Answered.of(RECORDS).by_family("a")
    assert {family: (one["right"], one["questions"]) for family, one in families.items()} == {
        "colour": (1, 2),
        "when": (2, 3),
    }


def test_differences_are_paired_over_scenes():
    """Scenes differ by 1 of 2, 0 of 1 and 1 of 2 questions: no draw of scenes gives more than one half."""
    found = Answered.of(RECORDS).difference("a", "b", seed=0)
    assert found["difference"] == pytest.approx(0.4)
    low, high = found["interval"]
    assert low == 0.0
    assert high == pytest.approx(0.5)
    assert Answered.of(RECORDS).difference("a", "a", seed=0)["interval"] == (0.0, 0.0)


def test_a_question_alone_with_its_video_has_no_rotation():
    assert Answered.of(RECORDS).in_company() == [0, 1, 3, 4]
    assert rotated([7, 7, 7, 3, 5, 5]) == [1, 2, 0, 3, 5, 4]


def test_every_row_is_measured_once():
    rows = needed(SIZES["full"], CompressorConfig(), {"uniform"})
    assert len({row.key for row in rows}) == len(rows)
    keys = {row.key for row in rows}
    assert {aviot(ratio, **switches).key for ratio in (2, 4, 10) for switches in ABLATION.values()} <= keys
    assert {f"aviot r{ratio}" for ratio in (2, 4, 6, 8, 10, 12, 16, 20)} <= keys
    assert {"uniform r4", "uniform r4 fine-tuned", "segment-mean r10", "uncompressed", "aviot r14 long"} <= keys
    assert "segment-mean r10 fine-tuned" not in keys


def test_the_checkpoints_own_pilot_is_no_second_row():
    for own, other in (("balanced", "unbalanced"), ("unbalanced", "balanced")):
        keys = {row.key for row in needed(SIZES["small"], CompressorConfig(pilot=own), set())}
        assert f"aviot r4 pilot={other}" in keys
        assert f"aviot r4 pilot={own}" not in keys


def test_sizes_refuse_what_they_are_not_for():
    with pytest.raises(ValueError, match="questions must be at least 2000 in the full setting, got 100"):
        size_named("full", 100)
    with pytest.raises(ValueError, match="setting must be one of full, small, got 'medium'"):
        size_named("medium", None)
    assert size_named("small", 5).questions == 5
    assert size_named("full", 3000).long_questions == 3000
