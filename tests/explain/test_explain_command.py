"""The `aviot explain` command: page, figures, exact data, and error messages."""

import json

import pytest
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from showing import CHECKPOINT, clip
from typer.testing import CliRunner

from aviot import VideoLM
from aviot.bundled import FOREIGN
from aviot.cli import app
from aviot.explain.figures import ChosenPair, FigureViews, fitted, paths_figure, support_figure
from aviot.explain.maps import FAINTEST, opacity
from aviot.explain.outputs import patch_boxes
from aviot.methods.aviot.analysis import mass_inside, top_cells


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of images whose name breaks markup that is not escaped."""
    folder = tmp_path_factory.mktemp("clips") / 'it\'s "mine" <b>'
    folder.mkdir()
    for number, frame in enumerate(clip(8)):
        Image.fromarray(frame).save(folder / f"{number}.png")
    return folder


def explain(*arguments):
    model = () if "--model" in arguments else ("--model", str(CHECKPOINT))
    return CliRunner().invoke(app, ["explain", *map(str, arguments), *model, "--max-new-tokens", "2"])


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    done = explain(
        *(folder, "-q", "What $x$?", "-q", "Why?", "--ratio", "4", "-o", out / "report.html", "--json"),
        *("--figures", out / "figures", "--export", out / "exact.safetensors"),
    )
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


def test_everything_is_written(written):
    out, said = written
    page = (out / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<title>it&#x27;s &quot;mine&quot; &lt;b&gt;" in page
    assert [answer["kind"] for answer in said["answers"]] == ["matched", "rotated", "none"] * 2
    assert said["ratio"] == 4
    names = {f"{name}.{suffix}" for name in ("allocation", "paths", "support") for suffix in ("pdf", "png")}
    assert {path.name for path in (out / "figures").iterdir()} == names
    for path in (out / "figures").iterdir():
        start = path.read_bytes()[:5]
        assert start == b"%PDF-" if path.suffix == ".pdf" else Image.open(path).width > 400


def test_it_is_said_who_answered(written):
    out, said = written
    assert (said["model"], said["notice"]) == ("checkpoint", None)
    assert said["model_shape"]["layers"] == 2
    assert "means nothing" not in (out / "report.html").read_text()


def test_the_bundled_model_warns_about_a_video_it_cannot_know(folder, tmp_path, bundled):
    """Warn on the page, in the JSON and on stderr, even if the bundled model is named explicitly."""
    page = tmp_path / "a.html"
    done = explain(folder, "-q", "What is the woman doing?", "--frames", "2", "-o", page, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["model"], said["notice"]) == ("bundled demo model", FOREIGN)
    assert FOREIGN in done.stderr
    assert FOREIGN in page.read_text()
    assert "bundled demo model" in page.read_text()


def test_names_from_outside_do_not_steer_the_terminal_or_the_page(folder, tmp_path):
    model = tmp_path / "evil\x1b[2J<script><b>"
    model.symlink_to(CHECKPOINT)
    page = tmp_path / "page\x1b[2J\udcff.html"
    done = explain(folder, "-q", "?", "--frames", "2", "-o", page, "--model", str(model))
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout + done.stderr
    assert "answered by evil\N{REPLACEMENT CHARACTER}[2J" in done.stderr
    assert "page\N{REPLACEMENT CHARACTER}[2J" in done.stdout
    text = page.read_text()
    assert "evil\N{REPLACEMENT CHARACTER}[2J\\u003cscript\\u003e" in text
    assert "\x1b" not in text
    assert "<script><b>" not in text


def test_the_export_is_exact(written, folder, loaded):
    out, _ = written
    tensors = load_file(out / "exact.safetensors")
    provenance = VideoLM(*loaded).open(folder).compress("Why?", budget=4).compression.provenance()
    assert torch.equal(tensors["question1.coefficients"], provenance.coefficients)
    share = tensors["question1.path_shares"]
    assert torch.allclose(share[2], provenance.branch("local").share, atol=1e-6)
    assert tensors["times"].tolist() == [n / 2 for n in range(8)]
    assert torch.equal(tensors["boxes"], patch_boxes((27, 27), 1.0))
    with safe_open(out / "exact.safetensors", "pt") as file:
        metadata = json.loads(file.metadata()["aviot"])
    assert metadata["questions"] == ["What $x$?", "Why?"]
    assert metadata["views"]["none"]["paths"] == ["global", "medium", "local"]


def test_boxes_are_shares_of_the_frame():
    boxes = patch_boxes((2, 4), 0.8)
    assert boxes[5].tolist() == pytest.approx([0.2, 0.4, 0.4, 0.8])  # second row, second column
    assert boxes[:, 2:].max() == pytest.approx(0.8)


def test_figures_of_a_frame_alone(folder, tmp_path):
    done = explain(folder, "-q", "?", "--frames", "1", "-o", tmp_path / "a.html", "--figures", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"support"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-q", " "), "the question is empty"),
        (("-q", "a", "-q", "b", "-q", "c", "-q", "d", "-q", "e"), "at most 4 questions"),
        (("-q", "a", "--ratio", "1"), "ratio must be"),
        (("-q", "a", "--compressor", "none"), "nothing to look at"),
        (("-q", "a", "--compressor", "magic"), "method must be one of"),
        (("-q", "a", "--export", "/nowhere/x"), "/nowhere is not a directory"),
        (("-q", "a", "--figures", __file__), "is a file; --figures names a folder"),
        (("-q", "a", "--figures", f"{__file__}/in/it"), "is a file; --figures names a folder"),
        (("-q", "\udcff\udcfe?"), "give it as UTF-8 text"),
        (("-q", "a", "--model", "/nowhere"), "no such folder"),
    ],
)
def test_mistakes_write_nothing(folder, tmp_path, arguments, sentence):
    done = explain(folder, *arguments, "-o", tmp_path / "report.html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_nothing_takes_the_place_of_something_else(tmp_path):
    video, page = tmp_path / "clip.mp4", tmp_path / "page.html"
    video.write_bytes(b"somebody's video")
    done = explain(video, "-q", "a", "-o", tmp_path / "." / "clip.mp4")
    assert "is the video itself; name another file for the page" in done.stderr
    assert video.read_bytes() == b"somebody's video"
    assert (
        "is the page; name another file for the data" in explain(video, "-q", "a", "-o", page, "--export", page).stderr
    )


def test_a_folder_that_cannot_be_written_to_is_known_at_once(folder):
    done = explain(folder, "-q", "a", "-o", "/proc/a.html")  # where not even root can write
    assert "nothing can be written in /proc" in " ".join(done.stderr.split())


def test_titles_fit_into_their_place():
    assert fitted("What\n is it?", 2.0, 7) == "What is it?"
    for text in ("a long answer " * 400, "W" * 90, "\N{REPLACEMENT CHARACTER}_" * 50, "x" * 60):
        cut = fitted(text, 2.0, 7)
        assert cut.endswith("…")
        assert 110 < text_to_path.get_text_width_height_descent(cut, FontProperties(size=7), False)[0] <= 144


def test_figures_show_the_frame_that_was_chosen(case):
    view = case.views[0]
    for frame in range(view.frames.shape[1]):
        views = FigureViews(ChosenPair(support=0, frame=frame))
        views.add(view)
        strongest = view.frames[0].argsort(descending=True)[:4].tolist()
        assert {frame, *(best for best in strongest if view.frames[0, best] > 0)} <= set(views.shown)
        assert len(views.shown) <= 5


def test_figures_open_with_what_the_first_question_is_about(case):
    view = case.views[0]
    views = FigureViews(ChosenPair())
    views.add(view)
    assert (views.support, views.frame) == view.starting_pair(0)
    assert (views.support, views.frame) == (case.study.conditions[0].support, case.study.conditions[0].frame)


def test_figures_fade_maps_that_are_close_to_even(case):
    views = FigureViews(ChosenPair(support=1))
    views.add(case.views[0])
    shares = [float(mass_inside(field, top_cells(field))) for field in views.fields]
    axes = support_figure(case.study, views).axes
    drawn = [axis.collections[0].get_alpha() for axis in axes[1 : 1 + len(shares)]]
    assert drawn == pytest.approx([opacity(share) for share in shares])
    assert all(f"top 20 %: {share:.1%}" in axis.get_title() for axis, share in zip(axes[1:], shares, strict=False))
    fused = views.maps.sum(0)
    assert axes[-1].images[0].get_alpha() == pytest.approx(opacity(float(mass_inside(fused, top_cells(fused)))))
    for level, axis in enumerate(paths_figure(case.study, views).axes[:-1]):
        share = float(mass_inside(views.maps[level], top_cells(views.maps[level])))
        assert axis.collections[0].get_alpha() == pytest.approx(opacity(share))
        assert axis.images[1].get_alpha() == pytest.approx(0.7 * opacity(share))
        assert f"top 20 %: {share:.1%}" in axis.get_title()


def test_opacity_grows_with_what_the_outlined_fifth_holds():
    shares = [0.0, 0.2, 0.22, 0.3, 0.4, 1.0]
    drawn = [opacity(share) for share in shares]
    assert drawn == sorted(drawn)
    assert drawn[0] == drawn[1] == FAINTEST < 0.25
    assert drawn[3] == pytest.approx((1 + FAINTEST) / 2)
    assert drawn[4] == drawn[5] == 1


def test_a_pair_that_is_not_there(folder, tmp_path):
    asked = (folder, "-q", "a", "-o", tmp_path / "a.html", "--figures", tmp_path / "f", "--support", "9")
    done = explain(*asked)
    assert done.exit_code == 2
    assert "support must be from 0 to 1, got 9" in done.stderr
