"""Exact match, and the intervals around its mean."""

import numpy as np
import pytest

from aviot.evaluation.intervals import bootstrap, paired, wilson
from aviot.evaluation.text import is_exact, normal

SAME = [
    ("red", "red"),
    ("Red.", "red"),
    (" RED ", "red"),
    ("the red car", "red car"),
    ("A red car!", "the red car"),
    ("an apple", "apple"),
    ("two", "2"),
    ("Two dogs", "2 dogs"),
    ("twelve", "12"),
    ("1,000", "1000"),
    ("3.5", "3.5"),
    ("3.50 m", "3.50 m"),
    ("-2", "-2"),
    ("\u22122", "-2"),
    ("yes", "Yes!"),
    ("ｙｅｓ", "yes"),
    ("红色。", "红色"),
    ("on the table", "on table"),
    ("black-and-white", "black and white"),
    ("dog\u2019s", "dog's"),
    ("caf\u00e9", "cafe\u0301"),
    ("  many   spaces ", "many spaces"),
    ("The The", "the the"),
    ("vitamin A", "Vitamin A."),
    ("straße", "STRASSE"),
    ("?", "?"),
]
DIFFERENT = [
    ("red", "blue"),
    ("red", "reddish"),
    ("red car", "red"),
    ("yes, he is", "yes"),
    ("35", "3.5"),
    ("-2", "2"),
    ("1000", "1"),
    ("vitamin A", "vitamin"),
    ("no", "not"),
    ("", "red"),
    ("", ""),
    ("thirteen", "13"),
]


@pytest.mark.parametrize(("reply", "answer"), SAME)
def test_same_answer_otherwise_written(reply, answer):
    assert is_exact(reply, [answer])
    assert is_exact(answer, ["something else", reply])


@pytest.mark.parametrize(("reply", "answer"), DIFFERENT)
def test_another_answer(reply, answer):
    assert not is_exact(reply, [answer])


@pytest.mark.parametrize("text", [text for pair in SAME for text in pair])
def test_the_normal_form_is_its_own(text):
    assert normal(normal(text)) == normal(text)


def test_wilson_as_tabulated():
    assert wilson(0, 0) is None
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(10, 10) == pytest.approx((0.72247, 1.0), abs=1e-5)
    assert wilson(81, 263) == pytest.approx((0.25529, 0.36620), abs=1e-4)  # Newcombe 1998, table I
    with pytest.raises(ValueError, match="between 0 and the trials"):
        wilson(3, 2)


def test_wilson_covers():
    """About 95 of 100 intervals hold the truth."""
    draws = np.random.default_rng(0).binomial(40, 0.3, 4000)
    held = [low <= 0.3 <= high for low, high in (wilson(int(d), 40) for d in draws)]
    assert 0.93 < np.mean(held) < 0.97


def test_paired_as_worked_out_by_hand():
    assert paired(0, 0, 0) is None
    assert paired(0, 0, 98) == pytest.approx((-0.0196, 0.0196), abs=1e-6)  # 1.96 / 100
    assert paired(7, 1, 98) == pytest.approx((0.0024, 0.1176), abs=1e-4)  # 0.06 ± 1.96 sqrt(9 - 100 · 0.06²) / 100
    low, high = paired(1, 7, 98)
    assert (-high, -low) == pytest.approx(paired(7, 1, 98))
    assert paired(1, 0, 1) == (pytest.approx(1 / 3 - 1.95996 * (5 / 3) ** 0.5 / 3, abs=1e-4), 1.0)
    for given in ((3, 0, 2), (2, 2, 3), (-1, 0, 5)):
        with pytest.raises(ValueError, match="gains and losses are among the trials"):
            paired(*given)


def test_paired_covers():
    """About 95 of 100 intervals hold the truth, or more where pairs seldom differ."""
    draws = np.random.default_rng(0).multinomial(30, (0.1, 0.06, 0.84), 4000)
    held = [low <= 0.04 <= high for low, high in (paired(int(g), int(s), 30) for g, s, _ in draws)]
    assert 0.93 < np.mean(held) < 0.99


def test_bootstrap_by_video():
    values = [0.0, 5.0] * 50
    assert bootstrap([], [], 0) is None
    assert bootstrap([0.0, 5.0], ["a", "a"], 0) is None  # one video says nothing of others
    independent = bootstrap(values, list(range(100)), 0)
    clustered = bootstrap(values, [i // 10 for i in range(100)], 0)
    assert independent == bootstrap(values, list(range(100)), 0)
    assert independent[0] < 2.5 < independent[1]
    assert clustered == (2.5, 2.5)  # every video has the same mean
    with pytest.raises(ValueError, match="one group per value"):
        bootstrap([1.0], [], 0)
