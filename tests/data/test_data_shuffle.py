"""Stateless permutations and draws."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aviot.data.shuffle import choice, mix, permute, replacement, shuffled

FIRST = [5, 1, 7, 4, 3, 0, 2, 6]
RATIOS = [1, 13, 16, 5, 11, 10, 10, 10, 9, 1, 10, 0]
SEEDS = st.integers(0, 2**63 - 1)


@given(st.integers(1, 3000), SEEDS, st.integers(0, 50))
def test_an_epoch_takes_every_record_once(size, seed, epoch):
    numbers = shuffled(np.arange(size), size, seed, epoch)
    assert sorted(numbers.tolist()) == list(range(size))


@given(st.integers(2, 3000), SEEDS, st.data())
def test_a_single_place_gives_the_same_number(size, seed, data):
    place = data.draw(st.integers(0, size - 1))
    whole = shuffled(np.arange(size), size, seed, 3)
    assert shuffled(np.array([place]), size, seed, 3)[0] == whole[place]


def test_the_argument_is_not_modified():
    places = np.arange(10)
    permute(places, 10, 1)
    assert places.tolist() == list(range(10))


def test_epochs_and_seeds_differ_and_are_stable_across_versions():
    first = shuffled(np.arange(8), 8, 0, 0).tolist()
    assert first != shuffled(np.arange(8), 8, 0, 1).tolist()
    assert first != shuffled(np.arange(8), 8, 1, 0).tolist()
    # Fixed values: a run resumed after an upgrade must have the same order.
    assert first == FIRST
    assert choice(np.arange(12), 17, 0).tolist() == RATIOS


def test_a_permutation_is_well_mixed():
    size = 20_000
    numbers = shuffled(np.arange(size), size, 5, 0)
    assert abs(np.corrcoef(np.arange(size), numbers)[0, 1]) < 0.03
    assert abs(np.mean(np.abs(np.diff(numbers))) / (size / 3) - 1) < 0.03
    starts = Counter(int(shuffled(np.array([0]), 7, seed, 0)[0]) for seed in range(2100))
    assert all(220 < starts[number] < 380 for number in range(7))


def test_choices_are_uniform_and_independent_of_their_neighbours():
    drawn = choice(np.arange(170_000), 17, 42)
    counts = np.bincount(drawn, minlength=17)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 40  # chi squared of 16 degrees: one in a thousand lies above
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.01


def test_replacements_cover_the_set():
    for position in range(20):
        assert {replacement(position, attempt, 10, 3) for attempt in range(1, 11)} == set(range(10))
    assert len({replacement(position, 1, 10, 3) for position in range(200)}) == 10


def test_hashes_of_arrays_are_those_of_their_numbers():
    assert mix(1, np.arange(4, dtype=np.uint64)).tolist() == [int(mix(1, i)[0]) for i in range(4)]
