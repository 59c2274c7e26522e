"""Segments, layouts and regions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.segments import Layout, Segments

CPU = torch.device("cpu")


@given(st.integers(1, 50), st.integers(1, 8))
def test_segments_are_contiguous_and_nearly_equal(sources, most):
    segments = Segments.of(sources, sources, most)
    sizes = segments.sizes(CPU).tolist()
    assert sum(sizes) == sources
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    x = torch.arange(1.0, sources + 1)
    parts = segments.split(x[:, None])[..., 0]
    assert parts.shape == (segments.count, segments.longest)
    assert parts[segments.mask(CPU)].tolist() == x.tolist()
    assert parts[~segments.mask(CPU)].eq(0).all()
    assert segments.join(parts).tolist() == x.tolist()
    starts = segments.starts(CPU).tolist()
    expected = [x[a : a + n].mean().item() for a, n in zip(starts, sizes, strict=True)]
    assert segments.mean(x).tolist() == pytest.approx(expected)


@st.composite
def layouts(draw):
    sources = draw(st.integers(1, 70))
    supports = draw(st.integers(1, sources))
    segments = Segments.of(sources, supports, draw(st.integers(1, 5)))
    sizes = segments.sizes(CPU).tolist()
    budgets = [1] * len(sizes)
    for _ in range(supports - len(sizes)):
        budgets[draw(st.sampled_from([m for m, n in enumerate(sizes) if budgets[m] < n]))] += 1
    return Layout(segments, supports, torch.tensor([budgets]))


@given(layouts())
def test_a_layout_places_every_support(layout):
    sizes, starts = layout.segments.sizes(CPU).tolist(), layout.segments.starts(CPU).tolist()
    budgets = layout.budgets[0].tolist()
    places = [(m, slot) for m, budget in enumerate(budgets) for slot in range(budget)]
    assert list(zip(layout.segment[0].tolist(), layout.slot[0].tolist(), strict=True)) == places
    uniform = []
    for n, budget in zip(sizes, budgets, strict=True):
        uniform += [int(i) for i in torch.round(torch.linspace(0, n - 1, budget))]
    assert layout.uniform_sources[0].tolist() == uniform
    assert layout.identity[0].tolist() == [n == k for n, k in zip(sizes, budgets, strict=True)]
    packed = torch.arange(1.0, layout.supports + 1)[None, None, :, None]
    padded = layout.pad(packed)[0, 0, ..., 0]
    assert padded[layout.slot_mask[0]].tolist() == packed.flatten().tolist()
    rows = torch.rand(1, 1, layout.supports, layout.segments.longest)
    expected = torch.zeros(layout.supports, layout.segments.sources)
    for j, (m, _) in enumerate(places):
        rows[0, 0, j, sizes[m] :] = 0
        expected[j, starts[m] : starts[m] + sizes[m]] = rows[0, 0, j, : sizes[m]]
    assert torch.equal(layout.dense(rows)[0, 0], expected)
    values = torch.rand(1, 1, layout.segments.sources, 3)
    assert torch.allclose(layout.mix(rows, values)[0, 0], expected @ values[0, 0], atol=1e-5)
    assert torch.equal(layout.uniform_rows(torch.float32)[0, 0].argmax(-1), layout.uniform_sources[0])


def test_uniform_start_keeps_torchs_float32_rounding():
    """Every k for segments of these lengths, among them those where exact arithmetic would differ."""
    for n in [*range(1, 65), 75, 112, 168, 224]:
        for k in range(1, n + 1):
            layout = Layout(Segments(n, 1), k, torch.tensor([[k]]))
            assert torch.equal(layout.uniform_sources[0], torch.round(torch.linspace(0, n - 1, k)).long()), (n, k)


@pytest.mark.parametrize(
    ("grid", "cells"),
    [
        (grid, cells)
        for grid in [(27, 27), (14, 14), (5, 7), (1, 6)]
        for cells in [(1, 1), (3, 3), (2, 5), (1, 4)]
        if cells[0] <= grid[0]  # the config refuses more cells than patches
    ],
)
def test_cells_are_as_equal_as_they_can_be_and_means_are_means(grid, cells):
    partition = Partition(grid, cells)
    region = partition.region_of_patch(CPU)
    rows = torch.bincount(region.view(grid)[:, 0] // cells[1])
    columns = torch.bincount(region.view(grid)[0])
    for counts in (rows, columns):
        assert counts.max() - counts.min() <= 1
    x = torch.rand(2, 3, grid[0] * grid[1], 4, dtype=torch.float64)
    means = partition.mean(x)
    assert means.shape == (2, partition.count, 3, 4)
    for r in range(partition.count):
        assert torch.allclose(means[:, r], x[:, :, region == r].mean(2))


@pytest.mark.parametrize("grid", [(27, 27), (14, 13)])
def test_multiples_nest_and_know_their_parents(grid):
    coarse, fine = Partition(grid, (3, 3)), Partition(grid, (9, 9))
    parents = fine.parents(coarse, CPU)
    assert torch.equal(parents[fine.region_of_patch(CPU)], coarse.region_of_patch(CPU))
    assert fine.parents(Partition(grid, (1, 1)), CPU).eq(0).all()


def test_a_parent_holds_the_childs_centre_where_partitions_do_not_nest():
    assert Partition((6, 6), (1, 3)).parents(Partition((6, 6), (1, 2)), CPU).tolist() == [0, 1, 1]


def test_position_code_layout():
    code = Partition((4, 6), (2, 3)).position_code(2, torch.zeros(1, dtype=torch.float64))
    assert code.shape == (6, 8)
    y, x = 0.75, 1.5 / 3
    angle = 2 * torch.pi * torch.tensor([1.0, 2.0], dtype=torch.float64)
    parts = [(angle * y).sin(), (angle * y).cos(), (angle * x).sin(), (angle * x).cos()]
    assert torch.allclose(code[4], torch.cat(parts))
