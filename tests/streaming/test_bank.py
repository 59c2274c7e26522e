"""The bank of supports: exact provenance through many merges, detail that falls with age, constant memory."""

import numpy as np
import pytest
import torch

from aviot.methods.features import TokenMixture
from aviot.streaming import FrameRange, StreamProvenance, SupportBank
from aviot.streaming.bank import FEATURES
from aviot.streaming.records import MAX_KNOTS

SHAPE = (6, 5)


def stream(count, seed=0, drift=0.2):
    """Return features that wander, with jumps, so that some neighbours are alike and others are not."""
    random = torch.Generator().manual_seed(seed)
    steps = drift * torch.randn(count, *SHAPE, generator=random)
    steps[:: max(1, count // 12)] *= 40
    return steps.cumsum(0)


def filled(features, capacity=24, recent=6, times=None, batch=7):
    bank = SupportBank(capacity, recent, {FEATURES: features[:1]})
    times = np.arange(len(features)) / 2 if times is None else times
    records = [FrameRange.frame(i, 3 * i, float(times[i])) for i in range(len(features))]
    for start in range(0, len(features), batch):
        bank.add({FEATURES: features[start : start + batch]}, records[start : start + batch])
    return bank


def dense(view):
    """Return the weights of the original frames in each support."""
    weights = torch.zeros(len(view), view.records[-1].last + 1, dtype=torch.float64)
    for row, record in zip(weights, view.records, strict=True):
        row[record.first : record.last + 1] = record.weight
    return weights


def test_provenance_rebuilds_the_bank_after_thousands_of_merges():
    features = stream(3000)
    bank = filled(features)
    view = bank.view()
    assert bank.merges == 3000 - 24 > 1000
    weights = dense(view)
    assert torch.allclose(weights.sum(1), torch.ones(24, dtype=torch.float64), atol=1e-12)
    rebuilt = torch.einsum("nt,tsd->nsd", weights, features.double())
    error = (rebuilt - view.features.double()).abs().max() / features.abs().max()
    assert error < 1e-6


def test_one_support_that_swallows_the_stream_stays_exact():
    features = 1 + 1e-3 * torch.randn(2000, *SHAPE, generator=torch.Generator().manual_seed(1))
    view = filled(features, capacity=4, recent=1).view()
    rebuilt = torch.einsum("nt,tsd->nsd", dense(view), features.double())
    assert (rebuilt - view.features.double()).abs().max() < 4e-6


def test_provenance_rebuilds_outputs():
    features = stream(1500)
    view = filled(features).view()
    random = torch.Generator().manual_seed(2)
    indices = torch.randint(0, 24 * SHAPE[0], (40, 5), generator=random)
    weights = torch.rand(40, 5, generator=random).softmax(1)
    found = StreamProvenance(TokenMixture(indices, weights, 24, SHAPE[0]), view.records)
    made = found.mixture.rebuild(view.features.flatten(0, 1))
    for token in range(len(found)):
        row = torch.zeros(1500, SHAPE[0], dtype=torch.float64)
        for source in found.sources(token):
            row[source.frames.first : source.frames.last + 1, source.patch] += source.weight
        assert row.sum() == pytest.approx(1, abs=1e-6)
        rebuilt = torch.einsum("ts,tsd->d", row, features.double())
        assert (rebuilt - made[token]).abs().max() < 1e-6 * features.abs().max()
        assert torch.allclose(found.frame_shares(token), row.sum(1), atol=1e-7)
    assert found.frame_shares().sum() == pytest.approx(1, abs=1e-6)
    assert found.frames == range(1500)


def test_records_cover_the_stream_in_order():
    view = filled(stream(1000)).view()
    assert view.records[0].first == 0
    assert view.records[-1].last == 999
    assert all(a.last + 1 == b.first for a, b in zip(view.records, view.records[1:], strict=False))
    means = [record.mean_time for record in view.records]
    assert means == sorted(means)
    for record in view.records:
        assert record.mean_time == pytest.approx((record.first + record.last) / 4, abs=1e-9)
        assert len(record.knots) <= 2  # the stream is steady
        assert np.allclose(record.times, record.ordinals / 2, atol=1e-9)
        assert (record.numbers == 3 * record.ordinals).all()
        assert record.time_error < 1e-9


def test_recent_frames_are_kept_whole():
    features = stream(500)
    view = filled(features, recent=6).view()
    assert [record.count for record in view.records[-6:]] == [1] * 6
    assert torch.equal(view.features[-6:], features[-6:])


def test_detail_falls_with_age():
    """A stream without events keeps an outline: a few supports for every eightfold of the age, none for most of it."""
    view = filled(torch.randn(4000, *SHAPE, generator=torch.Generator().manual_seed(3)), capacity=40, recent=4).view()
    counts = np.array([record.count for record in view.records])
    ages = np.array([4000 - (record.first + record.last) / 2 for record in view.records])
    assert all(((ages >= age) & (ages < 8 * age)).sum() >= 3 for age in (8, 64, 500))
    assert (counts <= ages).all()
    assert counts[0] > 500
    assert counts[-10:].max() <= 4


def test_a_still_hour_takes_few_supports_and_an_event_in_it_is_kept():
    features = torch.ones(3000, *SHAPE) + 1e-3 * torch.randn(3000, *SHAPE, generator=torch.Generator().manual_seed(4))
    features[1000:1040] += 1
    view = filled(features, capacity=12, recent=2).view()
    event = [record for record in view.records if record.first >= 1000 and record.last < 1040]
    assert event
    assert sum(record.count for record in event) >= 35


def test_uneven_times_are_bounded():
    random = np.random.default_rng(0)
    times = np.cumsum(random.uniform(0.01, 1, 1200))
    view = filled(stream(1200), times=times).view()
    for record in view.records:
        own = times[record.first : record.last + 1]
        assert len(record.knots) <= MAX_KNOTS
        assert record.span == (own[0], own[-1])
        assert record.mean_time == pytest.approx(own.mean(), abs=1e-9)
        assert (np.diff(record.times) >= 0).all()
        assert np.abs(record.times - own).max() <= record.time_error + 1e-9
        if record.count <= MAX_KNOTS:
            assert record.time_error == 0
    assert max(record.time_error for record in view.records) > 0  # else nothing was shown


def test_extras_are_mixed_alike():
    features = stream(300)
    bank = SupportBank(10, 2, {FEATURES: features[:1], "deepstack_0": features[:1, :, :3]})
    for i in range(300):
        now = {FEATURES: features[i : i + 1], "deepstack_0": 2 * features[i : i + 1, :, :3]}
        bank.add(now, [FrameRange.frame(i, i, float(i))])
    view = bank.view()
    assert torch.allclose(view.tensors["deepstack_0"], 2 * view.features[..., :3], atol=1e-4)


def test_memory_is_allocated_once():
    features = stream(200)
    bank = SupportBank(16, 4, {FEATURES: features[:1]})
    stored, size = bank._stored[FEATURES].data_ptr(), bank.nbytes
    for i in range(200):
        bank.add({FEATURES: features[i : i + 1]}, [FrameRange.frame(i, i, float(i))])
    assert bank._stored[FEATURES].data_ptr() == stored
    assert bank.nbytes == size


def test_too_small_a_bank_is_refused():
    with pytest.raises(ValueError, match="at least 4 supports"):
        SupportBank(3, 1, {FEATURES: stream(1)})


def test_ranges_must_follow_each_other():
    with pytest.raises(ValueError, match="follow each other"):
        FrameRange.frame(0, 0, 0.0).joined(FrameRange.frame(2, 2, 1.0))
