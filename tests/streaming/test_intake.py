"""Clock, sampling and queue: times that increase, an even rate, and a queue that drops evenly."""

import threading

import numpy as np
import pytest

from aviot.streaming.intake import FrameQueue, FrameSampler, QueuedFrame, StreamClock

PICTURE = np.zeros((4, 4, 3), np.uint8)


def fill(queue, count, first=0):
    for number in range(first, first + count):
        if queue.admits():
            queue.put(QueuedFrame(PICTURE, number, float(number)))


def numbers(frames):
    return [frame.number for frame in frames]


def test_times_start_at_zero_and_increase():
    clock = StreamClock()
    assert [clock.at(time) for time in (1e9, 1e9 + 0.5, 1e9 + 1)] == [0, 0.5, 1]


def test_frames_out_of_order_are_left_out():
    clock = StreamClock()
    assert [clock.at(time) for time in (0, 1.0, 0.5, 1.0, 1.5)] == [0, 1.0, None, None, 1.5]
    assert clock.resets == 0


def test_a_clock_that_goes_back_is_continued():
    clock = StreamClock()
    found = [clock.at(time) for time in (100, 100.5, 101, 7, 7.5, 3, 3.5)]
    assert found == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert clock.resets == 2


def test_a_stall_stays_a_gap():
    clock = StreamClock()
    assert [clock.at(time) for time in (0, 1, 600, 601)] == [0, 1, 600, 601]


def test_a_resumed_clock_goes_on():
    for start in (0.0, 50.0):  # a source that counts from zero again; one with the time of day
        clock = StreamClock(last=20.0, offset=-20.0, step=0.5)
        assert clock.at(start) == (20.5 if start == 0 else 30.0)
        assert clock.resets == 0


@pytest.mark.parametrize(("native", "fps", "kept"), [(30, 2, 2), (29.97, 2, 2), (25, 10, 10), (2, 2, 2), (1, 4, 1)])
def test_the_rate_is_kept(native, fps, kept):
    sampler, seconds = FrameSampler(fps), 60
    taken = [i / native for i in range(int(native * seconds)) if sampler.takes(i / native)]
    assert abs(len(taken) / seconds - kept) < 0.05
    assert max(np.diff(taken)) < 1.5 / kept


def test_a_full_queue_drops_evenly():
    queue = FrameQueue(frames=16)
    fill(queue, 1000)
    found = numbers(queue.take(100))
    assert len(found) + queue.dropped == 1000
    assert len(set(np.diff(found))) == 1
    assert len(found) >= 8


def test_the_rate_comes_back_when_the_queue_is_empty():
    queue = FrameQueue(frames=8)
    fill(queue, 100)
    while len(queue):
        queue.take(2)
    for _ in range(6):  # a rest: each time the queue is emptied, twice as many are let in
        fill(queue, 8, 100)
        queue.take(100)
    before = queue.dropped
    fill(queue, 8, 200)
    assert numbers(queue.take(8)) == list(range(200, 208))
    assert queue.dropped == before


def test_bytes_are_bounded():
    queue = FrameQueue(frames=1000, most_bytes=10 * PICTURE.nbytes)
    fill(queue, 500)
    assert len(queue) <= 10


def test_pairs_wait_for_each_other_and_the_last_does_not():
    queue = FrameQueue()
    fill(queue, 5)
    assert numbers(queue.take(8, multiple=2)) == [0, 1, 2, 3]
    queue.close()
    assert numbers(queue.take(8, multiple=2)) == [4]
    assert numbers(queue.take(8, multiple=2)) == []


def test_put_never_waits_for_a_slow_taker():
    queue, release = FrameQueue(frames=4), threading.Event()

    def slow():
        while queue.take(1):
            release.wait()

    taker = threading.Thread(target=slow)
    taker.start()
    fill(queue, 10_000)
    assert len(queue) <= 4
    release.set()
    queue.close()
    taker.join(10)
    assert not taker.is_alive()
