"""Methods of two stages: one on projected tokens, one inside the decoder."""

import pytest
import torch

from aviot import Budget
from aviot.methods import Kept, TokenMixture, TwoStage, VideoFeatures, get, register, registry
from aviot.methods.base import Compressed
from aviot.methods.baselines import LowResolution
from aviot.methods.peers.inside import pairs
from aviot.methods.peers.inside.folding import Folding
from aviot.methods.reduction import Entering, Reduced


def video(frames=6):
    generator = torch.Generator().manual_seed(0)
    return VideoFeatures(torch.randn(frames, 36, 8, generator=generator), (6, 6), tuple(2.0 * t for t in range(frames)))


def test_the_first_stage_decides_what_enters():
    both, alone = TwoStage("both", LowResolution(), Folding()), LowResolution()
    assert (both.name, both.point, both.compresses) == ("both", "tokens", True)
    assert both.bind({}) is both
    for budget in (Budget(keep=0.25), Budget(tokens=7), Budget(keep=1.0)):
        assert torch.equal(both(video(), budget=budget).tokens, alone(video(), budget=budget).tokens)


def test_needs_are_the_first_stages():
    class Needy(LowResolution):
        name = "needy"
        needs = frozenset({"attention"})
        uses_question = True

    both = TwoStage("both", Needy(), Folding())
    assert (both.needs, both.uses_question) == (frozenset({"attention"}), True)
    with pytest.raises(ValueError, match="'both' needs attention, which this backbone does not supply"):
        both(video(), question=torch.ones(8), budget=4)


def test_errors_of_the_second_stage_name_the_pair():
    second, given = Folding(), video()
    both = TwoStage("both", LowResolution(), second)
    entering = Entering(both(given, budget=4), torch.arange(54), None, attends=(True,) * 8, text=5)
    with pytest.raises(ValueError, match="method 'both' drops tokens before layer 18, and this decoder has 8"):
        both.inside.start(entering)
    assert second.name == "folding"


@pytest.mark.parametrize("name", ["dycoke", "holitom", "flashvid", "prunevid"])
def test_published_pairs_take_their_first_stage_from_the_registry(name, monkeypatch):
    both = {name, f"{name}-full"}
    monkeypatch.setattr(registry, "_OWN", {key: at for key, at in registry._OWN.items() if key not in both})
    monkeypatch.setattr(registry, "_registered", {})

    class First(LowResolution):
        pass

    First.name = name
    register(First, name)
    register(getattr(pairs, name), f"{name}-full")
    found = get(f"{name}-full")
    assert isinstance(found.first, First)
    assert found.inside.point == "decoder"
    assert torch.equal(found(video(), budget=4).tokens, First()(video(), budget=4).tokens)


def test_steps_compose_and_rebuild_from_the_sources():
    """Two merging steps after a first stage of mixtures, against dense matrices."""
    generator = torch.Generator().manual_seed(1)
    given = video()
    first = TokenMixture(
        torch.randint(0, 216, (20, 3), generator=generator), torch.rand(20, 3, generator=generator), 6, 36
    )
    made = Compressed.mixed(given, first)
    order = torch.randperm(20, generator=generator)
    state, dense, count = Reduced.nothing(20, order.device), torch.eye(20), 20
    for left in (12, 5):
        index = torch.randperm(count, generator=generator)[:left].sort().values
        into = torch.randint(-1, left, (count,), generator=generator)
        into[index] = torch.arange(left)
        weights = torch.rand(count, generator=generator)
        state = state.after(Kept(index, into, weights))
        step = torch.zeros(left, count)
        for token in range(count):
            if into[token] >= 0:
                step[into[token], token] = weights[token]
        dense, count = step @ dense, left
    found = state.result(made, order)
    expected = dense @ first.dense()[order]
    torch.testing.assert_close(found.mixture.dense(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.tokens, expected @ given.flat(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.mixture.rebuild(given.flat()), found.tokens, atol=1e-5, rtol=1e-5)
    means = dense @ made.positions[order] / dense.sum(1, keepdim=True)
    torch.testing.assert_close(found.positions, means, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(state.mix(made.tokens), dense @ made.tokens, atol=1e-5, rtol=1e-5)


def test_separators_leave_their_share_and_tokens_of_separators_alone_are_left_out():
    made = Compressed.kept(video(), torch.arange(4))
    order = torch.tensor([0, -1, 1, -1, 2, 3])
    into = torch.tensor([0, 0, 1, 2, 1, 3])
    weights = torch.tensor([0.25, 0.75, 0.5, 1.0, 0.5, 1.0])
    state = Reduced.nothing(6, order.device).after(Kept(torch.tensor([0, 2, 3, 5]), into, weights))
    found = state.result(made, order)
    assert found.mixture.dense()[:, :4].tolist() == [[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]]  # [0, 1 and 2, 3]
    tokens = made.tokens
    torch.testing.assert_close(found.tokens, torch.stack((tokens[0], tokens[1:3].mean(0), tokens[3])))
