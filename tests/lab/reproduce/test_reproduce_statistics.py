"""Shares, differences and distances, against numbers worked out by hand."""

import pytest

from aviot.config import CompressorConfig
from aviot.evaluation.intervals import paired, wilson
from aviot_lab.reproduce.rows import ABLATION, aviot, required_rows
from aviot_lab.reproduce.separation import rotated
from aviot_lab.reproduce.size import SIZES, size_named
from aviot_lab.reproduce.statistics import Answered, mean_with_interval
from aviot_lab.reproduce.summary import Summary

RECORDS = [
    {"scenes": [0, 0, 1], "families": ["colour", "when", "when"], "right": {"a": [1, 1, 0], "b": [0, 1, 0]}},
    {"scenes": [2, 2], "families": ["when", "colour"], "right": {"a": [1, 0], "b": [0, 0]}},
]


def test_shares_have_wilsons_interval_or_that_over_scenes():
    found = Answered.of(RECORDS, seed=0).share("a")
    assert (found["right"], found["questions"], found["accuracy"]) == (3, 5, 0.6)
    low, high = found["interval"]
    assert low == 0.0  # scene 1 alone, drawn three times
    assert high == 1.0  # scene 0 alone; Wilson's would be 0.2307 to 0.8824
    wholly = Answered.of([{"scenes": [0, 1], "families": ["when"] * 2, "right": {"a": [1, 1]}}], seed=0).share("a")
    assert wholly["interval"] == pytest.approx((0.3424, 1.0), abs=1e-4)  # scenes that agree say nothing of others
    assert Answered(seed=0, right={"a": []}).share("a")["interval"] is None
    families = Answered.of(RECORDS, seed=0).by_family("a")
    assert {family: (one["right"], one["questions"]) for family, one in families.items()} == {
        "colour": (1, 2),
        "when": (2, 3),
    }


def test_differences_are_paired_over_scenes():
    """And their interval is that of paired questions, or as far as draws of scenes reach beyond it."""
    found = Answered.of(RECORDS, seed=0).difference("a", "b")
    assert found["difference"] == pytest.approx(0.4)
    assert found["interval"] == pytest.approx(paired(2, 0, 5))  # no draw of scenes gives less than 0 or more than 1/2
    nothing = Answered.of(RECORDS, seed=0).difference("a", "a")
    assert nothing["interval"] == pytest.approx((-1.96 / 7, 1.96 / 7), abs=1e-4)  # rows that agree may differ elsewhere
    scenes = [scene for scene in range(40) for _ in range(5)]
    clustered = {"a": [float(scene % 2) for scene in scenes], "b": [0.0] * 200}
    alike = Answered.of([{"scenes": scenes, "families": ["when"] * 200, "right": clustered}], seed=0)
    low, high = alike.difference("a", "b")["interval"]
    alone = paired(100, 0, 200)
    assert high - low > 2 * (alone[1] - alone[0])  # five questions a scene say what one would
    assert Answered(seed=0, right={"a": [], "b": []}).difference("a", "b")["interval"] is None


def test_one_scene_says_nothing_of_others():
    alone = Answered.of([{"scenes": [3], "families": ["when"], "right": {"a": [1], "b": [1]}}], seed=0)
    assert alone.share("a")["interval"] == wilson(1, 1)
    assert alone.difference("a", "b")["interval"] == paired(0, 0, 1)
    assert mean_with_interval([0.5, 0.7], [3, 3], seed=0)["interval"] is None


def test_a_question_alone_with_its_video_has_no_rotation():
    assert Answered.of(RECORDS, seed=0).in_company() == [0, 1, 3, 4]
    assert rotated([7, 7, 7, 3, 5, 5]) == [1, 2, 0, 3, 5, 4]


def test_every_row_is_measured_once():
    rows = required_rows(SIZES["full"], CompressorConfig(), {"uniform"})
    assert len({row.key for row in rows}) == len(rows)
    keys = {row.key for row in rows}
    assert {aviot(ratio, **switches).key for ratio in (2, 4, 10) for switches in ABLATION.values()} <= keys
    for video in ("", " long"):
        assert {f"aviot r{ratio}{video}" for ratio in (2, 4, 6, 8, 10, 12, 14, 20)} <= keys
    assert {"uncompressed sampled", *(f"aviot r{ratio} sampled" for ratio in (2, 4, 10))} <= keys
    assert {"uniform r4", "uniform r4 fine-tuned", "segment-mean r10", "uncompressed", "aviot r14 long"} <= keys
    assert "segment-mean r10 fine-tuned" not in keys


def test_the_checkpoints_own_pilot_is_no_second_row():
    for own, other in (("balanced", "unbalanced"), ("unbalanced", "balanced")):
        keys = {row.key for row in required_rows(SIZES["small"], CompressorConfig(pilot=own), set())}
        assert f"aviot r4 pilot={other}" in keys
        assert f"aviot r4 pilot={own}" not in keys


@pytest.mark.parametrize("own", ["printed", "calibrated"])
def test_an_allocation_is_calibrated_only_with_a_threshold(own):
    known = CompressorConfig(allocation={"rule": own, "evidence_threshold": 0.1})
    other = {"printed": "calibrated", "calibrated": "printed"}[own]
    keys = {row.key for row in required_rows(SIZES["small"], known, set())}
    assert {f"aviot r4 allocation={other}", "aviot r4 cost_normalization=unit"} <= keys
    assert not keys & {f"aviot r4 allocation={own}", "aviot r4 cost_normalization=printed"}
    unknown = {row.key for row in required_rows(SIZES["small"], CompressorConfig(), set())}
    assert not any("allocation=calibrated" in key or "allocation=printed" in key for key in unknown)
    normalised = {row.key for row in required_rows(SIZES["small"], CompressorConfig(cost_normalization="unit"), set())}
    assert "aviot r4 cost_normalization=printed" in normalised


def test_what_is_beyond_the_paper_is_compared_with_the_checkpoints_own():
    config = CompressorConfig(allocation={"rule": "calibrated", "evidence_threshold": 0.125})
    rows = [row for row in required_rows(SIZE, config, set()) if row.video == "short"]
    marks = {row.key: [1.0] * (20 + number) + [0.0] * (80 - number) for number, row in enumerate(rows)}
    answered = {"scenes": list(range(100)), "families": ["when"] * 100, "right": marks}
    figures = Summary(SIZE, config, set(), [answered], [], seed=0).beyond()
    assert (figures["own"], figures["threshold"]) == (
        {"allocation": "calibrated", "cost_normalization": "printed"},
        0.125,
    )
    lines = {(line["title"], line["ratio"]): line["row"] for line in figures["lines"]}
    assert lines["The checkpoint's own", 4.0] == "aviot r4"
    assert lines["Allocation as printed", 4.0] == "aviot r4 allocation=printed"
    assert lines["Normalised cost", 10.0] == "aviot r10 cost_normalization=unit"
    assert len(lines) == 3 * len(SIZE.ablation_ratios)
    apart = {(one["title"], one["ratio"]): one["difference"] for one in figures["differences"]}
    expected = (sum(marks["aviot r4 allocation=printed"]) - sum(marks["aviot r4"])) / 100
    assert apart["Allocation as printed minus the checkpoint's own", 4.0] == pytest.approx(expected)


def test_sizes_refuse_what_they_are_not_for():
    with pytest.raises(ValueError, match="questions must be 2000 to 100000 in the full setting, got 100"):
        size_named("full", 100)
    with pytest.raises(ValueError, match="setting must be one of full, small, got 'medium'"):
        size_named("medium", None)
    assert size_named("small", 5).questions == 5
    assert [size_named("small", asked).long_questions for asked in (1, 5, 30, 500)] == [1, 1, 6, 100]
    assert [size_named("full", asked).long_questions for asked in (2000, 3000, 8000)] == [2000, 2000, 4000]


QUESTIONS = 100
SIZE = SIZES["full"]


@pytest.fixture(scope="module")
def counted():
    """Every row with another number of right answers, and the figures that follow."""
    rows = required_rows(SIZE, CompressorConfig(), {"uniform", "segment-mean"})
    right = {row.key: 20 + number for number, row in enumerate(rows)}
    scenes, families = list(range(QUESTIONS)), ["colour", "when"] * (QUESTIONS // 2)
    records = {}
    for video in (("short",), ("long", "sampled")):
        mine = [row.key for row in rows if row.video in video]
        marks = {key: [1.0] * right[key] + [0.0] * (QUESTIONS - right[key]) for key in mine}
        records[video[0]] = {"scenes": scenes, "families": families, "right": marks}
    usage = {"global": 0.5, "medium": 0.2, "local": 0.3, "budget_entropy": 0.9}
    records["short"] |= {
        "usage": {"4": {name: [value] * QUESTIONS for name, value in usage.items()}},
        "distances": [{"kind": "matched to none", "scene": 0, "allocation": 0.25, "temporal": 0.125}],
    }
    summary = Summary(
        SIZE, CompressorConfig(), {"uniform", "segment-mean"}, [records["short"]], [records["long"]], seed=0
    )
    return right, summary.figures(), usage


def test_every_line_is_of_its_own_row(counted):
    right, figures, usage = counted
    rows = {
        "controlled": {
            ("uncompressed", None): "uncompressed",
            ("Uniform Keep, at inference", 2.0): "uniform r2",
            ("Uniform Keep, fine-tuned", 4.0): "uniform r4 fine-tuned",
            ("Segment Mean, at inference", 10.0): "segment-mean r10",
            ("Segment Mean, fine-tuned", 10.0): "segment-mean r10 fine-tuned",
            ("AVIOT", 10.0): "aviot r10",
        },
        "ablation": {
            ("Full AVIOT", 4.0): "aviot r4",
            ("w/o question-conditioned transport cost", 4.0): "aviot r4 question_cost=False",
            ("w/o question-conditioned temporal allocation", 2.0): "aviot r2 question_allocation=False",
            ("w/o both conditioning paths", 10.0): "aviot r10 question_allocation=False question_cost=False",
            ("Global transport only", 10.0): "aviot r10 granularities=global",
            ("Multiple spatial granularities, equal fusion", 2.0): "aviot r2 fusion=equal",
        },
        "pilot": {("balanced pilot", 4.0): "aviot r4", ("unbalanced pilot", 4.0): "aviot r4 pilot=unbalanced"},
        "curve": {("224 frames", 20.0): "aviot r20 long", ("64 frames", 12.0): "aviot r12"},
        "frames": {
            ("64 frames, uncompressed", None): "uncompressed sampled",
            ("64 frames", 10.0): "aviot r10 sampled",
            ("224 frames", 2.0): "aviot r2 long",
            ("224 frames", 14.0): "aviot r14 long",
        },
        "intervention": {
            ("matched", 4.0): "aviot r4",
            ("rotated", 4.0): "aviot r4 query=rotated",
            ("none", 4.0): "aviot r4 query=none",
        },
    }
    for experiment, expected in rows.items():
        lines = {(line["title"], line["ratio"]): line for line in figures[experiment]["lines"]}
        for title, key in expected.items():
            line = lines[title]
            assert line["row"] == key
            if experiment != "intervention":  # where a video has one question, nothing can be rotated
                assert (line["right"], line["questions"]) == (right[key], QUESTIONS)
    supports = {(line["title"], line["ratio"]): line["supports"] for line in figures["curve"]["lines"]}
    assert [supports["224 frames", ratio] for ratio in SIZE.curve] == [112, 56, 38, 28, 23, 19, 16, 12]
    assert [supports["64 frames", ratio] for ratio in SIZE.curve] == [32, 16, 11, 8, 7, 6, 5, 4]
    for key in ("uncompressed", "uniform r4 fine-tuned", "aviot r20", "aviot r20 long"):
        found = figures["families"][key]
        assert {name: share["right"] for name, share in found.items()} == {
            "colour": (right[key] + 1) // 2,
            "when": right[key] // 2,
        }
    assert {(one["ratio"], one["quantity"]): one["mean"] for one in figures["gates"]} == pytest.approx(
        {(4.0, name): value for name, value in usage.items()}
    )
    (distance,) = figures["intervention"]["distances"]
    assert (distance["allocation"]["mean"], distance["temporal"]["mean"]) == (0.25, 0.125)


def test_every_difference_is_the_first_row_less_the_second(counted):
    right, figures, _ = counted
    pairs = {
        "controlled": {
            ("AVIOT minus Uniform Keep, at inference", 4.0): ("aviot r4", "uniform r4"),
            ("AVIOT minus Segment Mean, fine-tuned", 10.0): ("aviot r10", "segment-mean r10 fine-tuned"),
            ("AVIOT minus uncompressed", 2.0): ("aviot r2", "uncompressed"),
        },
        "ablation": {
            ("Full AVIOT minus Global transport only", 4.0): ("aviot r4", "aviot r4 granularities=global"),
        },
        "pilot": {("unbalanced minus balanced", 10.0): ("aviot r10 pilot=unbalanced", "aviot r10")},
        "curve": {
            ("224 frames, minus ratio 10", 20.0): ("aviot r20 long", "aviot r10 long"),
            ("64 frames, minus ratio 10", 12.0): ("aviot r12", "aviot r10"),
        },
        "frames": {
            ("224 frames minus 64 frames", 2.0): ("aviot r2 long", "aviot r2 sampled"),
            ("224 frames minus 64 frames, uncompressed", 4.0): ("aviot r4 long", "uncompressed sampled"),
            ("224 frames minus 64 frames at 4", 14.0): ("aviot r14 long", "aviot r4 sampled"),
        },
    }
    for experiment, expected in pairs.items():
        found = {(one["title"], one["ratio"]): one for one in figures[experiment]["differences"]}
        for title, (row, other) in expected.items():
            assert found[title]["difference"] == pytest.approx((right[row] - right[other]) / QUESTIONS)
    titles = {one["title"]: (one["row"], one["against"]) for one in figures["intervention"]["differences"]}
    assert titles == {
        "matched minus rotated": ("aviot r4", "aviot r4 query=rotated"),
        "matched minus none": ("aviot r4", "aviot r4 query=none"),
    }
