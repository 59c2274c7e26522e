"""What published methods do inside the decoder, against the arrays that their own code computed."""

from dataclasses import replace

import golden_arrays
import pytest
import torch

from aviot.methods import Compressed, Entering, VideoFeatures
from aviot.methods.peers import fastv, framefusion
from aviot.methods.peers.inside import attention, folding, question
from aviot.methods.reduction import Reduced


def entering(frames, patches, layers, *, order=None, limit=None, text=3):
    made = Compressed.kept(VideoFeatures(torch.zeros(frames, patches, 2), (1, patches)), torch.arange(frames * patches))
    return Entering(made, torch.arange(len(made)) if order is None else order, limit, (True,) * layers, text)


def taken(hidden, start, kept, count):
    """Return hidden states, [S, d], of what stays, and its indices; the visual tokens are `count` from `start` on."""
    at = torch.cat((torch.arange(start), start + kept.index, torch.arange(start + count, len(hidden))))
    values = Reduced.nothing(count, hidden.device).after(kept).mix(hidden[start : start + count])
    return torch.cat((hidden[:start], values, hidden[start + count :])), at


@pytest.mark.parametrize("name", golden_arrays.names("fastv"))
def test_fastv(name):
    case = golden_arrays.load("fastv", name)
    start, count, k = (case.params[key] for key in ("image_token_start_index", "image_token_length", "fastv_k"))
    left = fastv.kept_count(count, case.params["fastv_r"])
    reduction = fastv.FastV(k).start(entering(1, count, case.params["num_layers"], limit=left))
    hidden, rows = case["hidden"][0], case["attention_last_row"][0, :, :, start : start + count]
    for layer, weight in enumerate(case["layer_weights"]):
        asked = layer and reduction.queries(layer - 1)
        assert bool(asked) == (layer == k)
        kept = reduction.before(layer, hidden[start : start + count], rows if asked else None)
        if kept is not None:
            hidden, at = taken(hidden, start, kept, count)
            assert torch.equal(at, case["keep"])
        hidden = hidden + (hidden + hidden.mean(0)) @ weight
    torch.testing.assert_close(hidden, case["final_hidden"][0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", golden_arrays.names("framefusion"))
def test_framefusion(name):
    case = golden_arrays.load("framefusion", name)
    p, frames, patches = case.params, case.header["frames"], case.header["grid"][0] * case.header["grid"][1]
    parameters = framefusion.Parameters(
        p["cost"], p["similarity_lower_bound"], p["ratio_lower_bound"], p["num_layers_in_formula"]
    )
    prefix, count = p["prefix"], frames * patches
    start = entering(frames, patches, 6)
    state = framefusion.Fusion(parameters, framefusion.places_in_frame(start))
    hidden, positions = case["hidden"][0], torch.arange(prefix + count + p["suffix"])
    for layer, weight in enumerate(case["layer_weights"]):
        hidden = hidden + hidden @ weight
        row = (hidden @ case["attention_vector"]).softmax(0)[None, None, prefix : prefix + count]
        kept = state.within(layer, hidden[prefix : prefix + count], row if state.queries(layer) else None)
        if kept is not None:
            hidden, at = taken(hidden, prefix, kept, count)
            positions, count = positions[at], len(kept.index)
        assert torch.equal(positions, case[f"positions_{layer}"])
    assert len(positions) == int(case["counts"][-1])
    torch.testing.assert_close(torch.tensor(state.dropped, dtype=torch.float64), case["sparsity"], atol=1e-12, rtol=0)
    torch.testing.assert_close(hidden, case["final_hidden"][0], atol=1e-5, rtol=1e-5)


def with_tensor(method, tensor):
    return [name for name in golden_arrays.names(method) if tensor in golden_arrays.load(method, name).tensors]


@pytest.mark.parametrize("name", with_tensor("holitom", "last_row_attention"))
def test_holitoms_inner_merge(name):
    case = golden_arrays.load("holitom", name)
    start, count = case.params["image_start"], case.params["image_len"]
    inside = slice(start, start + count)
    reduction = folding.Folding(folding.Parameters(layer=2, folded=case.params["r"])).start(entering(1, count, 4))
    assert [reduction.queries(layer) for layer in range(4)] == [0, 1, 0, 0]
    hidden = case["hidden_states"]
    assert reduction.before(1, hidden[inside], None) is None
    kept = reduction.before(2, hidden[inside], case["last_row_attention"][:, None, inside])
    tokens, at = taken(hidden, start, kept, count)
    assert torch.equal(at, case["keep_indices"])
    torch.testing.assert_close(tokens, case["tokens"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", with_tensor("flashvid", "llm_keep"))
def test_flashvids_second_stage(name):
    case = golden_arrays.load("flashvid", name)
    rows, prefix = case["llm_attention_last_row"][0], case.params["llm_prefix"]
    count = rows.shape[-1] - prefix - case.params["llm_suffix"]
    parameters = attention.Parameters(case.params["pruning_layer"], case.params["llm_retention_ratio"])
    reduction = attention.LatePruning(parameters).start(entering(1, count, 28))
    hidden = torch.zeros(rows.shape[-1], 2)
    visual = slice(prefix, prefix + count)
    kept = reduction.before(parameters.layer, hidden[visual], rows[..., visual])
    assert torch.equal(taken(hidden, prefix, kept, count)[1], case["llm_keep"])


@pytest.mark.parametrize("name", with_tensor("prunevid", "llm_keep"))
def test_prunevids_second_stage(name):
    case = golden_arrays.load("prunevid", name)
    sizes = []
    for static, dynamic, window in zip(
        *(case[key].tolist() for key in ("static_sizes", "dynamic_sizes", "window_sizes")), strict=True
    ):
        sizes += [static, *[dynamic // window] * window]
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    scores = case["text_to_visual_attention"].amax((0, 1))
    kept = question.best_of_groups(scores, torch.tensor(groups), case.params["alpha"])
    assert torch.equal(kept, case["llm_keep"])


def test_prunevids_groups_are_found_in_the_sources():
    """Two segments of two and three frames: static tokens are means over the frames, dynamic ones lie in one."""
    from aviot.methods import TokenMixture

    patches = 4
    sources = [[0, 4], [1, 5], [2, 2], [6, 6], [7, 7]]  # static, static; dynamic of frame 0, of frame 1 twice
    sources += [[8, 16], [9, 9], [13, 13], [17, 17]]  # static of frames 2 to 4; one dynamic of each
    shares = [[0.5, 0.5] if first != last else [1.0, 0.0] for first, last in sources]
    mixture = TokenMixture(torch.tensor(sources), torch.tensor(shares), 5, patches)
    made = Compressed.mixed(VideoFeatures(torch.zeros(5, patches, 2), (2, 2)), mixture)
    order = torch.tensor([*range(9), -1])
    groups = question.groups_of(replace(entering(5, patches, 3), made=made, order=order)).tolist()
    of = {key: [at for at, group in enumerate(groups) if group == key] for key in groups}
    assert sorted(of.values()) == [[0, 1], [2], [3, 4], [5], [6], [7], [8], [9]]


@pytest.mark.parametrize("separators", ["none", "rows", "end"])
def test_places_in_a_frame_repeat(separators):
    frame = {"none": [0, 1, 2, 3], "rows": [0, 1, -1, 2, 3, -1], "end": [0, 1, 2, 3]}[separators]
    order = torch.tensor([place if place < 0 else 4 * time + place for time in range(3) for place in frame])
    if separators == "end":
        order = torch.cat((order, torch.tensor([-1])))
    places = framefusion.places_in_frame(entering(3, 4, 3, order=order)).tolist()
    expected = {"none": [0, 1, 2, 3] * 3, "rows": [0, 1, 4, 2, 3, 5] * 3, "end": [0, 1, 2, 3] * 3 + [4]}
    assert places == expected[separators]


@pytest.mark.parametrize("layers", [3, 28])
@pytest.mark.parametrize("cost", [0.02, 0.1, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["random", "similar", "identical", "zero"])
def test_framefusion_meets_its_cost(kind, cost, layers):
    """The mean share after each layer is the cost up to rounding, wherever one token in the last layers suffices."""
    generator = torch.Generator().manual_seed(0)
    frames, patches = 12, 10
    base = torch.randn(1, patches, 8, generator=generator)
    noise = {"random": 10.0, "similar": 0.7}.get(kind, 0.0)
    hidden = (base + noise * torch.randn(frames, patches, 8, generator=generator)).flatten(0, 1)
    hidden = hidden * 0 if kind == "zero" else hidden
    start = entering(frames, patches, layers, limit=max(1, round(cost * frames * patches)))
    state, counts = framefusion.FrameFusion().start(start), []
    for layer in range(layers):
        row = torch.rand(2, 1, len(hidden), generator=generator) if state.queries(layer) else None
        kept = state.within(layer, hidden, row)
        if kept is not None:
            hidden, _ = taken(hidden, 0, kept, len(hidden))
        counts.append(len(hidden))
    share = sum(counts) / layers / (frames * patches)
    assert share <= start.limit / (frames * patches) + 1 / (frames * patches)
    assert share >= start.limit / (frames * patches) - 1 / (frames * patches)
    assert hidden.isfinite().all()


def test_framefusions_formula_refuses_what_is_spent():
    assert framefusion.share_to_drop([], 0.3, 28) == pytest.approx(0.7)
    assert framefusion.share_to_drop([0.5], 1.0, 28) == 0
    with pytest.raises(ValueError, match=r"1 layers have used 0.9 of a cost of 0.1 over 3 layers"):
        framefusion.share_to_drop([0.1], 0.1, 3)


@pytest.mark.parametrize("count", [1, 2, 5, 39, 40])
def test_folding_is_one_mean_after_another(count):
    generator = torch.Generator().manual_seed(count)
    hidden, importance = torch.randn(40, 6, generator=generator), torch.rand(40, generator=generator)
    kept = folding.fold(hidden, importance, count)
    ranked = importance.argsort(descending=True)[:count].tolist()
    expected = hidden.clone().double()
    for token in sorted(set(range(40)) - set(ranked)):
        similar = torch.stack([torch.cosine_similarity(hidden[token], hidden[other], dim=0) for other in ranked])
        target = ranked[int(similar.argmax())]
        expected[target] = (expected[target] + hidden[token].double()) / 2
    assert kept.index.tolist() == sorted(ranked)
    mixed = Reduced.nothing(40, hidden.device).after(kept).mix(hidden)
    torch.testing.assert_close(mixed.double(), expected[kept.index], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["equal", "zero", "one", "two"])
def test_awkward_tokens_are_reduced_to_finite_ones(kind, dtype):
    count = {"one": 1, "two": 2}.get(kind, 24)
    hidden = torch.full((count, 6), 0.0 if kind == "zero" else 3.0, dtype=dtype)
    rows = torch.full((2, 1, count), 1 / count)
    start = entering(count, 1, 12, limit=max(1, count // 3))
    for method in (
        fastv.FastV(),
        framefusion.FrameFusion(),
        attention.LatePruning(attention.Parameters(layer=2)),
        folding.Folding(folding.Parameters(layer=2)),
        question.QuestionPruning(question.Parameters(layer=1)),
    ):
        reduction, values = method.start(start), hidden
        for layer in range(12):
            for ask in (reduction.before, reduction.within):
                kept = ask(layer, values, rows[..., : len(values)])
                if kept is not None:
                    kept.check(method.name, len(values))
                    values, _ = taken(values, 0, kept, len(values))
        assert 1 <= len(values) <= start.limit
        assert values.dtype == dtype
        torch.testing.assert_close(values, hidden[: len(values)])
