"""The paper's accounting, digit for digit."""

import pytest

from aviot.accounting import Backbone, account


def test_the_papers_table():
    rows = account(Backbone(), 64, [2, 4, 10])
    assert [row.supports for row in rows] == [64, 32, 16, 7]
    assert [row.tokens for row in rows] == [13440, 6720, 3360, 1470]
    assert [f"{row.retention:.1%}" for row in rows] == ["100.0%", "50.0%", "25.0%", "10.9%"]
    assert [f"{row.prefill_operations / 1e12:.2f}" for row in rows] == ["106.69", "44.28", "19.87", "8.14"]
    assert [f"{row.saved:.1%}" for row in rows[1:]] == ["58.5%", "81.4%", "92.4%"]


def test_any_backbone():
    small = Backbone(layers=2, width=8, feed_forward=16, grid=(4, 6), pool_stride=1)
    assert small.tokens_per_support == 4 * 7
    assert small.prefill_operations(3) == 2 * (4 * 3 * 64 + 2 * 9 * 8 + 2 * 3 * 8 * 16)


@pytest.mark.parametrize("bad", [{"layers": 0}, {"width": -1}, {"pool_stride": 0}, {"grid": (0, 4)}])
def test_impossible_backbones(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Backbone(**bad)


def test_impossible_videos():
    with pytest.raises(ValueError, match="frames"):
        account(Backbone(), 0, [2])
    with pytest.raises(ValueError, match="ratio"):
        account(Backbone(), 64, [0.5])
