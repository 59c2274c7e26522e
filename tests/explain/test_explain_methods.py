"""Pages of methods of every kind have the library's numbers; blended pictures have the exact coefficients."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from showing import QUESTIONS, clip

from aviot import Budget
from aviot.explain.animation import SIZE, check_suffix
from aviot.explain.blends import DROPPED, blended
from aviot.explain.clip import clip_of, even_size
from aviot.explain.outputs import Outputs
from aviot.explain.outputs import explain as write_explanation
from aviot.explain.page import readable
from aviot.explain.pictures import Pictures
from aviot.explain.spending import sentence, shortest_run
from aviot.explain.study import Asking, Setting
from aviot.explain.view import starting_pair


@pytest.mark.parametrize("method", ["aviot", "vidcom2-exact", "tome", "fastvid", "framefusion"])
def test_numbers_are_the_librarys(explained, method):
    """Selection, merging, merging before pooling, and a method inside the decoder."""
    case = explained(12, compressor=method)
    answer = case.session.ask(QUESTIONS[0], budget=4.0, method=method, max_new_tokens=3)
    condition, view = case.report["conditions"][0], case.report["views"][0]
    assert condition["answer"] == readable(answer.text)
    assert condition["tokens"] == (answer.tokens_before, answer.tokens_after)
    torch.testing.assert_close(
        torch.tensor(view["spent"]), answer.compressed.frame_shares, atol=1e-6, rtol=0, check_dtype=False
    )
    assert sum(view["tokens"]) == len(answer.compressed)
    assert len(view["blends"]) == len(view["tokens"]) == len(view["spans"])
    assert max(view["checks"].values()) < 3e-6
    rows, columns = case.report["grid"]
    assert rows * columns == case.views[0].coefficients.shape[1]
    assert case.report["conditioned"] == (method in ("aviot", "framefusion"))


def test_other_settings_are_answered_and_a_refusal_costs_its_own_entry(explained, monkeypatch):
    case = explained(12, also=("uniform", "dycoke"))
    kept, refused = case.report["alternatives"]
    expected = case.session.ask(QUESTIONS[0], budget=4.0, method="uniform", max_new_tokens=3)
    assert (kept["answer"], kept["tokens"]) == (
        readable(expected.text),
        (expected.tokens_before, expected.tokens_after),
    )
    np.testing.assert_allclose(kept["spent"], expected.compressed.frame_shares.numpy(), atol=1e-6)
    assert len(kept["blends"]) == 3
    assert "keeps at least" in refused["refused"]


def test_the_shortest_run_and_the_sentence():
    assert shortest_run([0.1, 0.3, 0.3, 0.1, 0.2], 0.5) == (1, 2)
    assert shortest_run([0.25] * 4, 0.5) == (0, 1)
    assert shortest_run([0.0, 0.0, 1.0], 0.8) == (2, 2)
    assert shortest_run([1.0], 0.5) == (0, 0)
    times = [n / 2 for n in range(64)]
    shares = [0.0] * 64
    shares[14:21] = [1 / 7] * 7
    said = sentence((64 * 210, 13 * 210), times, shares)
    assert said == "13 of 64 frames' worth of tokens; half of them from 0:07 to 0:08"


@pytest.mark.parametrize("cover", [1.0, 0.75])
def test_blends_are_the_pixels_times_the_coefficients(cover):
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 255, (3, 64, 96, 3), dtype=np.uint8)
    pictures = Pictures(tuple(map(Image.fromarray, frames)), (96, 64))
    coefficients = torch.rand(2, 6, 3)
    coefficients /= coefficients.sum(-1, keepdim=True)
    coefficients[1, 4] = 0  # a position without tokens
    first, second = blended(coefficients, pictures, (2, 3), cover)
    assert first.size == (216, 144)
    covered = [image.crop((0, 0, round(96 * cover), round(64 * cover))) for image in pictures.images]
    sources = np.stack([np.asarray(image.resize((216, 144), Image.Resampling.BOX), np.float64) for image in covered])
    weights = coefficients[0].double().numpy().reshape(2, 3, 3).repeat(72, 0).repeat(72, 1)  # [144,216,T]
    expected = np.einsum("hwt,thwc->hwc", weights, sources)
    assert np.abs(np.asarray(first) - expected).max() <= 0.51
    assert (np.asarray(second)[72:, 72:144] == DROPPED).all()


def test_the_copy_plays_at_its_times():
    av = pytest.importorskip("av")
    images = [Image.fromarray(frame) for frame in clip(6, 61, 81)]
    made = clip_of(images, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 3.0)
    with av.open(io.BytesIO(made.data)) as container:
        times = [float(frame.time) for frame in container.decode(video=0)]
    assert times == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 2.999], abs=2e-3)
    assert made.kind == "frames"
    assert even_size((1921, 1080), 360) == (360, 202)


def test_mass_counts_in_what_is_shown_first():
    frames, relevance = torch.eye(3), torch.tensor([0.3, 0.29, -0.3])
    assert starting_pair(frames, relevance)[0] == 0
    assert starting_pair(frames, relevance, torch.tensor([1.0, 9.0, 9.0]))[0] == 1


@pytest.mark.parametrize("name", ["out.gif", "out.mp4"])
def test_an_animation_shows_every_question(case, tmp_path, name):
    from aviot.explain.pictures import open_with_pictures

    session, pictures = open_with_pictures(case.session.lm, clip(4), source_fps=2)
    also = (Setting("uniform", None),)
    outputs = Outputs(tmp_path / "page.html", animation=tmp_path / name)
    _, written = write_explanation(session, pictures, Asking(QUESTIONS, Budget(ratio=2.0), "uniform", 2, also), outputs)
    assert written == [tmp_path / "page.html", tmp_path / name]
    if name.endswith(".gif"):
        with Image.open(tmp_path / name) as image:
            assert (image.n_frames, image.width / image.height) == (8, pytest.approx(SIZE[0] / SIZE[1], rel=0.01))
    else:
        av = pytest.importorskip("av")
        with av.open(str(tmp_path / name)) as container:
            assert sum(1 for _ in container.decode(video=0)) == 8
    with pytest.raises(ValueError, match=r"ends in \.mp4 or \.gif"):
        check_suffix(tmp_path / "a.avi")


def test_the_copy_of_a_file_has_more_than_the_sampled_frames(case, tmp_path):
    av = pytest.importorskip("av")
    from aviot.explain.pictures import open_with_pictures

    file = tmp_path / "a.mp4"
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=8)
        stream.height, stream.width, stream.pix_fmt = 60, 80, "yuv420p"
        for frame in clip(24):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    _, pictures = open_with_pictures(case.session.lm, file)
    assert (len(pictures.images), pictures.clip.kind) == (6, "video")
    with av.open(io.BytesIO(pictures.clip.data)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 25  # and the last one again, until the end
    _, pictures = open_with_pictures(case.session.lm, clip(4), source_fps=2)
    assert pictures.clip.kind == "video"  # of all the frames that there are
