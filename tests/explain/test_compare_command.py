"""`aviot compare`: the same answers as asking, refusals in their rows, and pages without markup from outside."""

import json
from pathlib import Path

import pytest
from PIL import Image
from showing import CHECKPOINT, clip
from typer.testing import CliRunner

import aviot
from aviot.cli import app
from aviot.explain.comparison import sparkline
from aviot.methods import Compressed, TokenMethod, register
from aviot.methods.registry import _registered

QUESTION = "What <b>x</b>?"


class WholeVideoOnly(TokenMethod):
    """A method that refuses every budget below the whole video."""

    name = "whole-video-only"

    def compress(self, video, *, question, budget):
        raise ValueError("this method <i>keeps</i> everything; choose another")


class FirstToken(TokenMethod):
    """A method that keeps a single token."""

    name = "first-token"

    def compress(self, video, *, question, budget):
        import torch

        return Compressed.kept(video, torch.zeros(1, dtype=torch.long))


@pytest.fixture(scope="module", autouse=True)
def registered():
    for method in (WholeVideoOnly, FirstToken):
        register(method, method.name)
    yield
    for method in (WholeVideoOnly, FirstToken):
        del _registered[method.name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips") / "<script>"
    folder.mkdir()
    for number, frame in enumerate(clip(8)):
        Image.fromarray(frame).save(folder / f"{number}.png")
    return folder


def compare(*arguments):
    given = ("--model", str(CHECKPOINT), "--max-new-tokens", "3", *map(str, arguments))
    return CliRunner().invoke(app, ["compare", *given])


NAMES = ("uniform", "low-resolution", "whole-video-only", "first-token", "none")


@pytest.fixture(scope="module")
def compared(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "pages"
    methods = [part for name in NAMES for part in ("--method", name)]
    done = compare(folder, "-q", QUESTION, *methods, "--keep", 0.5, "-o", out, "--json")
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


def test_every_method_answers_as_it_does_alone(compared, folder):
    _, said = compared
    assert [row["method"] for row in said["methods"]] == list(NAMES)
    session = aviot.VideoLM.from_pretrained(CHECKPOINT, device="cpu").open(folder)
    for row in said["methods"]:
        if row["refused"]:
            continue
        alone = session.ask(QUESTION, method=row["method"], budget=aviot.Budget(keep=0.5), max_new_tokens=3)
        assert (row["answer"], row["tokens_after"]) == (alone.text, alone.tokens_after)
        assert sum(row["frame_shares"]) == pytest.approx(1, abs=1e-5)
        assert len(row["frame_shares"]) == said["frames"] == 8


def test_where_a_method_looked_is_its_tokens_frames(compared):
    rows = {row["method"]: row for row in compared[1]["methods"]}
    assert rows["first-token"]["frame_shares"] == [1.0] + [0.0] * 7
    assert rows["none"]["frame_shares"] == pytest.approx([1 / 8] * 8)
    assert [share > 0 for share in rows["uniform"]["frame_shares"]].count(True) == 4


def test_a_refusal_costs_its_own_row_only(compared):
    (refused,) = [row for row in compared[1]["methods"] if row["refused"]]
    assert refused["method"] == "whole-video-only"
    assert "choose another" in refused["refused"]


def test_pages_are_written_and_escaped(compared):
    out, said = compared
    index = (out / "index.html").read_text()
    assert "What &lt;b&gt;x&lt;/b&gt;?" in index
    assert "<b>x" not in index
    assert "<i>keeps" not in index
    assert "<script" not in index
    linked = {row["page"] for row in said["methods"]} - {""}
    assert linked == {"uniform.html", "low-resolution.html", "first-token.html"}
    assert {path.name for path in out.iterdir()} == linked | {"index.html"}
    for page in linked:
        assert f'href="{page}"' in index


def test_the_table_names_every_method(folder):
    done = compare(folder, "-q", QUESTION, "--method", "uniform", "--method", "whole-video-only")
    assert done.exit_code == 0, done.output
    assert "uniform" in done.stdout
    assert "whole-video-only: this method <i>keeps</i> everything; choose another" in done.stdout.splitlines()


def test_an_automatic_budget_is_chosen_for_each_method(folder, tmp_path):
    auto = "auto:min=8,max=2,quality=1"  # asks again, whatever the answer
    words = ("-q", QUESTION, "--method", "uniform", "--method", "none", "--budget", auto)
    done = compare(folder, *words, "-o", tmp_path / "pages", "--json")
    assert done.exit_code == 0, done.output
    chosen, whole = json.loads(done.stdout)["methods"]
    session = aviot.VideoLM.from_pretrained(CHECKPOINT, device="cpu").open(folder)
    tries = [session.ask(QUESTION, method="uniform", budget=ratio, max_new_tokens=3) for ratio in (8, 2)]
    assert (chosen["answer"], chosen["tokens_after"]) == (tries[1].text, tries[1].tokens_after)
    assert chosen["tokens_read"] == sum(each.tokens_after for each in tries)
    assert chosen["budget"] == "ratio 2"
    assert whole["budget"] == ""  # there is nothing to choose
    assert f"{chosen['tokens_read']:,} read in all" in (tmp_path / "pages" / "index.html").read_text()
    said = compare(folder, *words).stdout
    assert f"uniform: {chosen['tokens_read']:,} tokens read in all; ratio 2 is the largest budget" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--method", "aviott"), "method must be one of"),
        (("--method", "uniform", "--keep", "2"), "keep must be a share"),
        (("--method", "uniform", "--keep", "0.5", "--ratio", "4"), "not both"),
    ],
)
def test_mistakes_are_refused(folder, wrong, said):
    done = compare(folder, "-q", "x", *wrong)
    assert done.exit_code == 2
    assert said in done.stderr


def test_an_output_that_is_a_file_is_refused(folder, tmp_path):
    occupied = tmp_path / "a.txt"
    occupied.write_text("mine")
    done = compare(folder, "-q", "x", "--method", "uniform", "-o", occupied)
    assert done.exit_code == 2
    assert Path(occupied).read_text() == "mine"


def test_a_chart_shows_every_moment_that_has_tokens():
    assert sparkline([0.0, 1.0, 0.5, 0.001], 4) == " █▄▁"
    assert sparkline([0.25] * 7, 3) == "███"
    assert sparkline([1.0], 24) == "█"
