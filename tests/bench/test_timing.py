"""Medians with a fake clock, and bytes that can be counted by hand."""

import pytest
import torch

from aviot.bench.result import total_ms
from aviot.bench.timing import (
    CPU,
    Measurement,
    NotMeasured,
    attempt,
    bandwidth_share,
    copy_bandwidth,
    fewest_bytes,
    measure,
)


def test_the_median_and_spread_of_a_fake_clock():
    durations = iter([0.005, 0.001, 0.009, 0.002, 0.004])
    now, calls = [0.0], []

    def work():
        calls.append(1)
        if len(calls) > 2:  # the warm-up takes no time that is seen
            now[0] += next(durations)
        else:
            now[0] += 100

    found = measure(work, CPU, warmup=2, repeats=5, clock=lambda: now[0])
    assert len(calls) == 7
    assert found.median_ms == pytest.approx(4)
    assert found.spread_ms == pytest.approx(8)
    assert found.repeats == 5
    assert found.peak_extra_mib is None  # nothing counts a CPU's memory


@pytest.mark.gpu
def test_extra_memory_on_a_gpu():
    there = torch.zeros(2**20, device="cuda")
    found = measure(lambda: there + 1, torch.device("cuda"), warmup=1, repeats=3)
    assert found.peak_extra_mib == pytest.approx(4, rel=0.1)


def test_full_memory_is_noted():
    def work():
        raise torch.OutOfMemoryError

    assert attempt(work) == NotMeasured("out of memory")
    assert attempt(lambda: 3) == 3


def test_fewest_bytes():
    assert fewest_bytes((10, 4), 3, 5, 2) == (10 + 10 + 4) * 3 * 5 * 2
    assert fewest_bytes((10, 6, 4), 1, 1, 1) == (10 + 10 + 6) + (6 + 4)
    assert fewest_bytes((10,), 3, 5, 2) == 0
    assert fewest_bytes((224, 168, 112, 56), 729, 1152, 2) == pytest.approx(1.8e9, rel=0.01)


def test_share_of_bandwidth():
    assert bandwidth_share(10**9, Measurement(500.0, 0.0, 1), 4e9) == pytest.approx(0.5)
    assert bandwidth_share(0, Measurement(500.0, 0.0, 1), 4e9) is None
    assert bandwidth_share(10**9, NotMeasured("out of memory"), 4e9) is None
    assert copy_bandwidth(CPU, warmup=1, repeats=2) > 1e6


def test_a_sum_needs_all_its_parts():
    parts = {"encode": Measurement(1.0, 0.0, 1), "prefill": Measurement(2.0, 0.0, 1)}
    assert total_ms(parts, ("encode", "prefill")) == 3
    assert total_ms(parts, ("encode", "to_tokens")) is None
    assert total_ms(parts | {"to_tokens": NotMeasured("out of memory")}, ("encode", "to_tokens")) is None
