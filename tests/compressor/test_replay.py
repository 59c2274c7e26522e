"""Capture and replay of graphs, with a stand-in for graphs where there is no GPU."""

import pickle

import pytest
import torch
from torch import nn

from aviot.methods.aviot import replay
from aviot.methods.aviot.replay import MAX_GRAPHS, Replays, replayable


class Recorded:
    """A graph that logs its replays and runs the work instead."""

    def __init__(self, work, log):
        self.work, self.log = work, log

    def run(self, inputs):
        self.log.append("replayed")
        return self.work(**inputs)


@pytest.fixture
def log(monkeypatch):
    log = []
    monkeypatch.setattr(replay, "on_gpu", lambda _: True)
    monkeypatch.setattr(replay, "capture", lambda work, inputs: log.append("captured") or Recorded(work, log))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return log


def test_the_first_runs_the_second_is_captured_the_third_replayed(log):
    layer, replays, x = nn.Linear(3, 2), Replays(), torch.randn(4, 3)

    def run(x, key="layer"):
        return replays.run(lambda x: layer(x), {"x": x}, key=(key,), modules=(layer,))

    seen = []
    for inputs in (x, x, 2 * x, x[:2], x):
        assert torch.equal(run(inputs), layer(inputs))
        seen.append(list(log))
        log.clear()
    assert seen == [[], ["captured", "replayed"], ["replayed"], [], ["replayed"]]
    layer.weight.data = layer.weight.data.clone()  # moved
    run(x)
    run(x, "another")
    assert log == []


def test_the_most_recent_graphs_stay_cached(log):
    replays, x = Replays(), torch.randn(3)

    def run(name):
        return replays.run(torch.neg, {"input": x}, key=(name,), modules=())

    for name in range(MAX_GRAPHS + 1):
        run(name)
        run(name)
    log.clear()
    for name in range(1, MAX_GRAPHS + 1):
        run(name)
    assert log == ["replayed"] * MAX_GRAPHS
    run(0)
    assert log[MAX_GRAPHS:] == ["captured", "replayed"]


@pytest.mark.usefixtures("log")
def test_work_that_no_graph_can_replace(monkeypatch):
    layer, x = nn.Linear(3, 2), torch.randn(3)
    assert replayable(x, (layer,))
    hook = layer.register_forward_hook(lambda *_: None)
    assert not replayable(x, (layer,))
    hook.remove()
    layer.forward = layer.forward
    assert not replayable(x, (layer,))
    assert not replayable(x, (nn.Linear(3, 2, device="meta"),))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: True)
    assert not replayable(x, ())


def test_off_a_gpu_work_just_runs():
    x = torch.randn(3)
    assert not replayable(x, ())
    replays = Replays()
    assert all(torch.equal(replays.run(torch.neg, {"input": x}, key=(), modules=()), -x) for _ in range(3))


def test_a_copy_starts_without_graphs(log):
    replays, x = Replays(), torch.randn(3)
    for _ in range(2):
        replays.run(torch.neg, {"input": x}, key=(), modules=())
    log.clear()
    pickle.loads(pickle.dumps(replays)).run(torch.neg, {"input": x}, key=(), modules=())
    assert log == []
