"""Sampled frame numbers and presentation times."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aviot.video import Sampling, VideoError
from aviot.video.sampling import Timeline, are_valid_timestamps

totals = st.integers(1, 5000)
rates = st.sampled_from([0.5, 2.0, 10.0, 23.976, 24.0, 25.0, 29.97, 30.0, 60.0]) | st.floats(0.01, 300)


@given(totals, rates, st.floats(0.1, 40), st.integers(1, 400))
def test_every_stride_th_frame_or_an_even_spread(total, native, fps, most):
    indices = Sampling(fps=fps, max_frames=most).indices(total, native)
    stride = max(1, round(native / fps))
    strided = list(range(0, total, stride))
    expected = strided if len(strided) <= most else np.linspace(0, total - 1, most, dtype=int).tolist()
    assert list(indices) == expected
    assert len(set(indices)) == len(indices) <= most


@given(totals, rates, st.integers(1, 6000))
def test_a_fixed_count_is_spread_over_the_whole_video_without_repetition(total, native, count):
    indices = Sampling(frames=count, max_frames=3).indices(total, native)
    assert len(indices) == min(count, total) == len(set(indices))
    assert list(indices) == np.linspace(0, total - 1, min(count, total), dtype=int).tolist()
    assert indices[0] == 0
    assert len(indices) == 1 or indices[-1] == total - 1


@pytest.mark.parametrize(
    ("total", "native", "expected"),
    [(300, 30.0, 15), (250, 25.0, 12), (10, 1.0, 1), (300, 29.97, 15), (1000, 24.0, 12)],
)
def test_known_strides(total, native, expected):
    indices = Sampling().indices(total, native)
    assert indices == tuple(range(0, total, expected))


@pytest.mark.parametrize("name", ["fps", "max_frames", "frames"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "2", [2]])
def test_invalid_counts_and_rates(name, value):
    with pytest.raises(VideoError, match=rf"{name} must be .* got "):
        Sampling(**{name: value})


def test_counts_are_whole():
    with pytest.raises(VideoError, match="whole number"):
        Sampling(max_frames=2.5)
    assert Sampling(max_frames=np.int64(5)).indices(100, 2.0) == (0, 24, 49, 74, 99)


def test_a_constant_rate_is_index_over_fps_though_the_clock_is_coarse():
    pts = np.array([round(i * 1000 / 30) for i in range(300)])
    line = Timeline.from_pts(pts, Fraction(1, 1000), 33, [Fraction(30)])
    assert line.fps == 30
    assert line.duration == 10
    assert line.times((0, 1, 299)) == (0.0, 1 / 30, 299 / 30)


def test_the_golden_clip_lasts_as_long_as_its_frames():
    assert Timeline.constant(25, Fraction(2)).duration == 12.5


def test_a_variable_rate_keeps_its_own_times():
    pts = np.array([100, 150, 400, 410])
    line = Timeline.from_pts(pts, Fraction(1, 100), 90, [Fraction(25)])
    assert line.times((0, 1, 2, 3)) == (0.0, 0.5, 3.0, 3.1)
    assert line.duration == 4.0
    assert line.fps == 1.0
    assert line.select(np.array([False, True, True, True])).times((0, 1, 2)) == (0.0, 2.5, 2.6)


def test_a_last_frame_of_unknown_length_lasts_as_long_as_the_others():
    assert Timeline.from_pts(np.array([0, 10, 30, 40]), Fraction(1, 10), 0, []).duration == 5.0
    assert Timeline.from_pts(np.array([7]), Fraction(1, 100), 0, []).duration == 0.04


@pytest.mark.parametrize(("pts", "valid"), [([0, 1], True), ([0, 0], False), ([0, 2**60], False), ([], False)])
def test_timestamps_are_validated(pts, valid):
    assert are_valid_timestamps(np.array(pts, dtype=np.int64)) is valid
