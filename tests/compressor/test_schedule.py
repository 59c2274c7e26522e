"""Paths, counts, warm-ups and ratios."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aviot.config import TRAINING_RATIOS, AllocationConfig, CompressorConfig
from aviot.methods.aviot.schedule import (
    allocation_temperature,
    path_for,
    ramp,
    relevance_weight,
    sample_ratio,
    support_count,
)

CONFIG = CompressorConfig()


@pytest.mark.parametrize(
    ("frames", "ratio", "path"),
    [
        (224, 2, (224, 168, 112)),
        (224, 4, (224, 168, 112, 56)),
        (224, 10, (224, 168, 112, 56, 23)),
        (224, 20, (224, 168, 112, 56, 12)),
        (48, 1.5, (48, 40, 32)),  # 0.75 * 48 = 36 lies between 32 and 40: halves go up
        (119, 5, (119, 88, 56, 32, 24)),
        (9, 10, (9, 8, 1)),
        (2, 2, (2, 1)),
        (1, 4, (1,)),
    ],
)
def test_paths(frames, ratio, path):
    assert path_for(CONFIG, frames, support_count(frames, ratio)) == path


@given(st.integers(1, 2000), st.floats(1.0001, 3000))
def test_paths_fall_strictly_to_the_ceiling(frames, ratio):
    supports = support_count(frames, ratio)
    path = path_for(CONFIG, frames, supports)
    assert path[0] == frames
    assert path[-1] == supports
    assert list(path) == sorted(set(path), reverse=True)
    assert supports - 1 < frames / ratio <= supports * (1 + 1e-9)


@given(st.integers(1, 500), st.data())
def test_every_count_has_a_ratio(frames, data):
    supports = data.draw(st.integers(1, frames))
    if supports < frames:
        assert support_count(frames, frames / supports) == supports


def test_warm_ups():
    config = AllocationConfig()
    assert [ramp(step, 500) for step in (0, 125, 500, 9000, None)] == [0, 0.25, 1, 1, 1]
    assert relevance_weight(0.5, config) == pytest.approx(0.15)
    assert [allocation_temperature(p, config) for p in (0, 1)] == [1.0, pytest.approx(0.1)]


def test_ratios_are_drawn_uniformly_from_seventeen_by_the_generator():
    assert TRAINING_RATIOS == (2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5, 10)
    draws = [sample_ratio(torch.Generator().manual_seed(seed)) for seed in (3, 3)]
    assert draws[0] == draws[1]
    generator = torch.Generator().manual_seed(0)
    counts = dict.fromkeys(TRAINING_RATIOS, 0)
    for _ in range(3400):
        counts[sample_ratio(generator)] += 1
    assert all(140 < count < 260 for count in counts.values())
    state = torch.get_rng_state()
    sample_ratio(generator)
    assert torch.equal(state, torch.get_rng_state())
