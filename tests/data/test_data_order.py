"""Order, ratios and batches: functions of the seed and the position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_sets import record, turns, write_lines

from aviot.config import TRAINING_RATIOS
from aviot.data import BatchLayout, Corpus, CostModel, DataConfig, Order, StepBatches

COST = CostModel(fps=2.0, max_frames=224, tokens_per_support=210)
BUCKETS = ("0_30_s_academic", "30_60_s_youtube", "1_2_m_youtube", "2_3_m_academic")


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    records = [
        record(i, data_source=BUCKETS[i % 4], conversations=turns("What?", "word " * (1 + i % 50))) for i in range(100)
    ]
    path = write_lines(folder / "a.jsonl", records)
    config = DataConfig(str(path), seed=11, index_folder=str(folder / "index"))
    return Order(Corpus.open(config), config)


def batches(order, *, steps=20, start_step=0, **layout) -> StepBatches:
    return StepBatches(order, BatchLayout(**layout), COST, steps=steps, start_step=start_step)


def test_each_epoch_has_every_record_once_in_its_own_order(order):
    epochs = [order.records(np.arange(100 * e, 100 * e + 100)).tolist() for e in range(3)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert (order.epoch(99), order.epoch(100)) == (0, 1)


def test_a_batch_may_lie_across_epochs(order):
    across = order.records(np.arange(90, 110)).tolist()
    assert across == [order.record(position) for position in range(90, 110)]


def test_ratios_are_the_papers(order):
    drawn = order.ratios(np.arange(2000))
    assert set(drawn.tolist()) == set(TRAINING_RATIOS)
    assert len(TRAINING_RATIOS) == 17
    assert order.ratio(1234) == drawn[1234]


@pytest.mark.parametrize("layout", [{"ranks": 1, "micro_batch": 1}, {"ranks": 4, "micro_batch": 2}, {"ranks": 8}])
def test_a_step_takes_the_same_examples_however_it_is_divided(order, layout):
    for step in (0, 7):
        taken = [
            position
            for rank in range(layout["ranks"])
            for batch in batches(order, global_batch=16, rank=rank, **layout).step(step)
            for position in batch
        ]
        assert sorted(taken) == list(range(16 * step, 16 * step + 16))


@given(st.integers(0, 5), st.integers(0, 3))
def test_a_run_resumes_where_it_stopped(order, start, rank):
    layout = {"global_batch": 16, "micro_batch": 2, "ranks": 4, "rank": rank}
    whole = list(batches(order, steps=5, **layout))
    rest = batches(order, steps=5, start_step=start, **layout)
    assert list(rest) == whole[start * 2 :]
    assert len(rest) == len(whole) - start * 2


@pytest.mark.parametrize(("ranks", "factors"), [(8, (2.50, 1.13, 1.35, 1.05)), (32, (3.49, 1.69, 2.05, 1.46))])
def test_ranks_wait_less_than_with_unsorted_examples(tmp_path, ranks, factors):
    """Cost of the slowest rank over the mean, per micro step and per step, unsorted and sorted: docs/data.md."""
    rng, micro_steps, steps = np.random.default_rng(0), 128 // ranks, 30
    names = rng.choice(BUCKETS, 4000, p=(0.5, 0.2, 0.2, 0.1))
    records = [
        record(i, data_source=str(name), conversations=turns("What?", "word " * int(rng.integers(1, 400))))
        for i, name in enumerate(names)
    ]
    config = DataConfig(str(write_lines(tmp_path / "a.jsonl", records)), index_folder=str(tmp_path))
    order = Order(Corpus.open(config), config)
    costs = order.costs(np.arange(128 * steps), COST)
    planned = [list(batches(order, steps=steps, global_batch=128, ranks=ranks, rank=rank)) for rank in range(ranks)]
    found = []
    for work in (costs.reshape(-1, ranks).T, costs[np.array(planned)[:, :, 0]]):
        of_steps = work.reshape(ranks, steps, micro_steps).sum(2)
        found += [rank.max(0).sum() / (costs.sum() / ranks) for rank in (work, of_steps)]
    assert [found[0], found[2], found[1], found[3]] == pytest.approx(factors, abs=0.02)


def test_the_most_expensive_come_first(order):
    (first, *_, last) = batches(order, global_batch=32).step(3)
    costs = order.costs(np.array(first + last), COST)
    assert costs[0] > costs[1]


def test_cost_follows_frames_ratio_and_text():
    one = COST.estimate(np.array([400]), np.array([60.0]), np.array([4.0]))
    assert one[0] == 210 * 30 + 21 * 120 + 100
    capped = COST.estimate(np.array([0, 0]), np.array([1e9, np.inf]), np.array([2.0, 2.0]))
    assert capped.tolist() == [210 * 112 + 21 * 224] * 2
    unknown = COST.estimate(np.array([0, 0]), np.array([np.nan, 40.0]), np.array([2.0, 2.0]))
    assert unknown[0] == unknown[1]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"global_batch": 10, "ranks": 4}, "multiple of micro_batch x ranks = 1 x 4 = 4, got 10; 8 would do"),
        ({"global_batch": 2, "ranks": 4}, "4 would do"),
        ({"global_batch": 0}, "global_batch must be"),
        ({"global_batch": 4, "ranks": 4, "rank": 4}, "rank must be from 0 to 3, got 4"),
    ],
)
def test_invalid_layouts(layout, message):
    with pytest.raises(ValueError, match=message):
        BatchLayout(**layout)


def test_invalid_steps(order):
    with pytest.raises(ValueError, match="start_step must be from 0 to the 20 steps"):
        batches(order, global_batch=4, start_step=21)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"ratios": ()}, "ratios is empty"),
        ({"ratios": 4.0}, "ratios must be a tuple"),
        ({"ratios": (1.0,)}, "ratios must hold numbers above 1"),
        ({"ratios": (float("nan"),)}, "ratios must hold"),
        ({"bad_records": "ignore"}, "bad_records must be one of"),
        ({"max_failed_share": 2}, r"max_failed_share must lie in \[0, 1\]"),
        ({"attempts": 0}, "attempts must be"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"records": ""}, "records must be a path"),
        ({"video_root": ""}, "video_root must be a path"),
        ({"records": None}, "records must be a path"),
    ],
)
def test_invalid_configurations(changes, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**({"records": "a.json"} | changes))
