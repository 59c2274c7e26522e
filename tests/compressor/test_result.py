"""One video of a batched result equals its compression alone."""

import pytest
import torch
from common import inputs, make

from aviot import UniformKeep
from aviot.methods.aviot.analysis import budget_entropy


def alone(batch, index):
    return {name: value[index] for name, value in batch.items()}


@pytest.mark.parametrize("frames", [20, 3])
@pytest.mark.parametrize("kind", ["aviot", "uniform"])
def test_a_video_of_a_batch(kind, frames):
    compressor = make().double()
    compressor = UniformKeep(compressor.config) if kind == "uniform" else compressor
    batch = inputs(frames, batch=(3,), dtype=torch.float64)
    together = compressor(**batch, supports=5)
    for index in range(3):
        found, expected = together.video(index), compressor(**alone(batch, index), supports=5)
        assert found.path == expected.path
        assert found.budgets == expected.budgets
        assert torch.allclose(found.features, expected.features, atol=1e-10)
        assert found.loss.shape == ()
        assert torch.allclose(found.loss, expected.loss, atol=1e-10)
        ours, theirs = found.provenance(), expected.provenance()
        assert torch.allclose(ours.coefficients, theirs.coefficients, atol=1e-10)
        assert torch.allclose(ours.frames(), theirs.frames(), atol=1e-10)
        if found.stages and kind == "aviot":
            for name in ("global", "medium", "local"):
                assert torch.allclose(ours.branch(name).mass, theirs.branch(name).mass, atol=1e-10)


def test_gradients_reach_one_video_alone():
    compressor, batch = make().double(), inputs(batch=(2,), dtype=torch.float64)
    batch["x"].requires_grad_()
    compressor(**batch, supports=5).video(1).loss.backward()
    assert batch["x"].grad[0].eq(0).all()
    assert batch["x"].grad[1].abs().max() > 0


def test_the_batch_works_its_terms_out_once():
    with torch.no_grad():
        together = make()(**inputs(batch=(2,)), supports=5)
    with torch.enable_grad():
        losses = [together.video(index).loss for index in range(2)]
    assert torch.equal(torch.stack(losses), together.loss)
    assert not losses[0].requires_grad
    assert "terms" in vars(together)


def test_what_is_refused():
    together = make()(**inputs(batch=(2,)), supports=5)
    for index in (2, -1):
        with pytest.raises(ValueError, match=f"one of the batch's 2 videos, from 0, got {index}"):
            together.video(index)
    with pytest.raises(ValueError, match="this compression is of one video"):
        together.video(0).video(0)


def test_usage_of_gates_and_budgets():
    compressor, batch = make(), inputs(batch=(2,))
    together = compressor(**batch, supports=5)
    for index in range(2):
        usage = together.video(index).usage
        assert torch.allclose(usage.budget_entropy, together.usage.budget_entropy[index])
        assert list(usage.shares) == ["global", "medium", "local"]
        assert torch.allclose(sum(usage.shares.values()), torch.tensor(1.0))
        stage = together.stages[-1]
        assert all(torch.allclose(stage.branch(n)[1][index].mean(), stage.shares[n][index]) for n in usage.shares)
    assert together.video(0).usage.shares["local"].requires_grad is False
    assert compressor(**batch, supports=20).usage is None
    assert UniformKeep(compressor.config)(batch["x"], supports=5).usage.shares == {}


def test_budget_entropy():
    assert torch.allclose(budget_entropy(torch.tensor([[2, 2, 2, 2], [1, 0, 0, 0]])), torch.tensor([1.0, 0.0]))
    assert budget_entropy(torch.tensor([[7]])).tolist() == [1.0]


def test_a_result_prints_in_a_line(golden):
    out = golden("t20_r2").run()
    assert repr(out) == f"Compression(features=float32{list(out.features.shape)}, path={out.path})"
    assert repr(out.provenance()) == f"Provenance(coefficients=float32{list(out.provenance().coefficients.shape)})"
