"""A report's numbers are the library's."""

import base64
import json
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from aviot.explain.maps import FIGURES, pack_maps
from aviot.explain.page import embedded, page_of
from aviot.explain.pictures import JPEG_BYTES, LARGEST_SIDE, as_jpegs, read_with_pictures
from aviot.explain.study import check_questions, conditions_of
from aviot.methods.aviot.analysis import agreement, allocation_distance, temporal_divergence, top_cells


def numbers(text, dtype):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


@pytest.fixture(scope="module")
def out(case):
    return case.session.compress(case.study.questions[0], budget=4).compression


def test_frames_and_paths_are_the_provenance(case, out):
    p, raw = out.provenance(), case.report["views"][0]
    mass = torch.from_numpy(numbers(raw["mass"], "<f4").reshape(3, 3, 12).copy())
    assert torch.allclose(mass.sum(0), p.frames(), atol=1e-6)
    assert torch.allclose(mass.sum((0, 2)), torch.ones(3), atol=1e-5)
    for name, path, share in zip(raw["paths"], mass, raw["shares"], strict=True):
        branch = p.branch(name)
        assert torch.allclose(path, branch.mass.mean(1), atol=1e-6)
        assert share == pytest.approx(float(branch.share.mean()), abs=1e-5)
    assert sum(raw["shares"]) == pytest.approx(1, abs=1e-5)


def test_every_check_is_down_to_rounding(case):
    for view in case.report["views"]:
        assert max(view["checks"].values()) < 3e-6
        assert view["checks"]["rebuilt"] > 0  # was worked out


def test_maps_outlines_and_figures(case, out):
    raw, p = case.report["views"][0], out.provenance()
    mass = torch.stack([path.mass for _, path in p.branches()])  # [L,K,S,T]
    pairs = numbers(raw["pairs"], "<u2").reshape(-1, 2)
    packed = np.concatenate([numbers(chunk, np.uint8) for chunk in raw["chunks"]]).reshape(len(pairs), -1)
    figures = numbers(raw["figures"], "<u2").reshape(-1, 4) / 65535
    assert raw["kept_mass"] == pytest.approx(1, abs=1e-4)
    for place, (output, frame) in enumerate(pairs.tolist()):
        maps = mass[:, output, :, frame]
        steps = torch.from_numpy(packed[place, : 3 * 729].reshape(3, 729).astype(np.float32))
        assert (steps / 255 * maps.amax(-1, keepdim=True) - maps).abs().max() <= maps.max() / 400
        bits = np.unpackbits(packed[place, 3 * 729 :].reshape(4, 92), axis=-1)[:, :729]
        assert np.array_equal(bits, top_cells(torch.cat((maps.sum(0, keepdim=True), maps))).numpy())
        exact = agreement(maps.double(), (27, 27))
        assert figures[place] == pytest.approx([float(getattr(exact, name)) for name in FIGURES], abs=1e-5)


def test_comparisons_are_the_supplements(case):
    first, second, none = case.views
    found = {(each["first"], each["second"]): each for each in case.report["comparisons"]}
    assert set(found) == {(0, 1), (0, 2), (1, 2)}
    assert found[0, 1]["allocation"] == allocation_distance(first.budgets[0], second.budgets[0])
    assert found[1, 2]["temporal"] == temporal_divergence(second.frames, none.frames)


def test_conditions():
    assert list(conditions_of(0, 1, 2)) == [("matched", 0), ("none", 1)]
    assert list(conditions_of(2, 3, 4)) == [("matched", 2), ("rotated", 0), ("none", 3)]
    assert list(conditions_of(1, 2, 1)) == [("none", 0)]  # a baseline


def test_answers_under_every_condition(case):
    answers = {(each["question"], each["kind"]): each for each in case.report["conditions"]}
    assert answers[0, "rotated"]["view"] == answers[1, "matched"]["view"] == 1
    read = case.session.compress(case.study.questions[1], budget=4)
    expected = case.session.answer(case.study.questions[0], read, max_new_tokens=3).text
    assert case.study.conditions[1].answer == expected


def test_tokens_and_prefill(case):
    report = case.report
    assert (report["supports"], report["tokens"]) == (3, {"before": 12 * 210, "after": 3 * 210})
    assert 0.7 < report["prefill"]["saved"] < 1
    assert report["views"][0]["segments"][0] == [3, 3, 3, 3]  # of the first stage, 12 to 8


def test_fields_keep_to_their_room_and_what_matters():
    torch.manual_seed(0)
    mass = torch.rand(3, 20, 49, 60) ** 8
    mass /= mass.sum((0, 3), keepdim=True)
    small, large = pack_maps(mass, (7, 7), 20_000), pack_maps(mass, (7, 7), 10**9)
    assert sum(len(base64.b64decode(chunk)) for chunk in small.chunks) <= 20_000
    assert small.kept_mass < large.kept_mass == pytest.approx(1)
    kept = {tuple(pair) for pair in numbers(pack_maps(mass, (7, 7), 60_000).pairs, "<u2").reshape(-1, 2).tolist()}
    strongest = mass.sum(0).mean(1).argmax(-1).tolist()
    assert all((output, frame) in kept for output, frame in enumerate(strongest))


@pytest.mark.parametrize(("height", "width"), [(90, 40), (40, 90), (700, 30)])
def test_pictures_keep_their_shape_and_the_models_frames_are_its_own(loaded, height, width):
    frames = np.random.default_rng(1).integers(0, 255, (3, height, width, 3), dtype=np.uint8)
    video, pictures = read_with_pictures(loaded[1], frames, source_fps=2)
    assert np.array_equal(video.frames, loaded[1].read(frames, source_fps=2).frames)
    assert pictures.size == (width, height)
    small = pictures.images[0]
    assert max(small.size) <= LARGEST_SIDE
    assert small.width / small.height == pytest.approx(width / height, rel=0.1)


def test_pictures_of_long_noisy_videos_fit(monkeypatch):
    monkeypatch.setattr("aviot.explain.pictures.JPEG_BYTES", JPEG_BYTES // 5)  # as of 100 frames
    noise = np.random.default_rng(0).integers(0, 255, (2, 320, 320, 3), dtype=np.uint8)
    files = as_jpegs([Image.fromarray(noise[n % 2]) for n in range(20)])
    assert sum(len(base64.b64decode(file)) for file in files) <= JPEG_BYTES // 5
    assert len(files) == 20


def test_a_page_holds_any_text():
    text = "</script><script>alert(1)</script> & \u2028 <!-- {{style}} \"'"
    assert "<" not in embedded([text])
    assert json.loads(embedded([text])) == [text]


def test_a_page_asks_for_nothing(case):
    page = page_of(case.report)
    assert "window.broken = 1</script>" not in page
    assert not [
        line
        for line in page.splitlines()
        if "http" in line and "http-equiv" not in line and "w3.org/2000/svg" not in line
    ]


def test_questions_are_checked():
    assert check_questions([" a ", "b", "a"]) == ("a", "b")
    with pytest.raises(ValueError, match="the question is empty"):
        check_questions(["a", " "])
    with pytest.raises(ValueError, match="at most 4 questions at a time, got 5"):
        check_questions(list("abcde"))
