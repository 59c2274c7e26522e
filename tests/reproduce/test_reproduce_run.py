"""One reproduction with an untrained model: every row is answered as it says, and a killed run goes on."""

import json
import re
from dataclasses import replace

import pytest
import torch

from aviot.compressor.intervention import allocation_distance, temporal_divergence
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.reproduce import examiner as examining
from aviot.reproduce.examiner import Examiner
from aviot.reproduce.rows import ABLATION, aviot, needed
from aviot.reproduce.run import JOURNAL, Options, reproduce
from aviot.reproduce.size import Size
from aviot.small.accuracy import accuracy, write_sheet
from aviot.small.learning import answer, encode
from aviot.small.lessons import LessonWriter
from aviot.synthetic import World, WorldConfig, draw, render

SIZE = Size(
    questions=7,
    frames=16,
    ratios=(2.0, 4.0),
    ablation_ratios=(4.0,),
    curve=(4.0, 10.0, 12.0),
    question_ratio=4.0,
    long_questions=2,
    long_frames=32,
    sampled=16,
    long_ratio=4.0,
    videos=2,
    long_videos=1,
)
PARTS = ("question_cost", "question_allocation", "granularities", "fusion", "pilot")


@pytest.fixture(scope="module")
def world():
    return World(WorldConfig())


@pytest.fixture(scope="module")
def writer(tokenizer):
    return LessonWriter(tokenizer)


@pytest.fixture
def marked(monkeypatch):
    """Answers that show how they were asked for: an untrained model's are all wrong."""
    calls = []

    def answer_and_mark(model, u, lesson, *, ratio, compressor, hears, ask):
        found = answer(model, u, lesson, ratio=ratio, compressor=compressor, hears=hears, ask=ask)
        switches = tuple(getattr(model.config.compressor, part) for part in PARTS)
        calls.append((compressor, ratio, switches, hears, ask, u.shape[1]))
        good = torch.tensor([(number * len(calls)) % 3 == 0 for number in range(len(found.right))])
        return replace(found, right=good)

    monkeypatch.setattr(examining, "answer", answer_and_mark)
    return calls


def options(folder, out, **changed):
    given = {"folders": {"model": folder}, "setting": "small", "size": SIZE, "seed": 0, "out": out}
    return Options(**(given | {"device": torch.device("cpu")} | changed))


def load(folder):
    return AviotForConditionalGeneration.from_pretrained(folder).eval(), AviotProcessor.from_pretrained(folder)


def test_every_row_is_answered_as_it_says(model, writer, world, marked):
    rows = needed(SIZE, model.config.compressor, set())
    sheet = write_sheet(writer, world, "test", (0, 1), SIZE.frames)
    record = Examiner({"model": model}, rows, SIZE, writer).short(sheet)
    short = [row for row in rows if row.sight == "short"]
    assert list(record["right"]) == [row.key for row in short]
    own = tuple(getattr(model.config.compressor, part) for part in PARTS)
    calls = dict(zip((row.key for row in short), marked, strict=True))
    assert calls["uncompressed"] == ("none", None, own, None, True, 16)
    assert calls["segment-mean r2"] == ("segment-mean", 2.0, own, None, True, 16)
    for switches in ABLATION.values():
        expected = tuple(switches.get(part, value) for part, value in zip(PARTS, own, strict=True))
        assert calls[aviot(4.0, **switches).key] == ("aviot", 4.0, expected, None, True, 16)
    assert calls["aviot r4 pilot=unbalanced"][2][-1] == "unbalanced"
    assert calls["aviot r4 query=none"][4] is False
    scenes = record["scenes"]
    heard = calls["aviot r4 query=rotated"][3]
    assert all(scenes[row] == scenes[other] for row, other in enumerate(heard))
    assert sorted(heard) == list(range(len(scenes)))
    assert list(record["usage"]) == ["2", "4"]
    shares = record["usage"]["4"]
    assert all(sum(shares[level][row] for level in ("global", "medium", "local")) == pytest.approx(1) for row in (0, 1))


def test_distances_are_those_of_compressions_made_one_by_one(model, writer, world):
    sheet = write_sheet(writer, world, "test", (0,), SIZE.frames)
    assert len(sheet.questions) == 3
    record = Examiner({"model": model}, needed(SIZE, model.config.compressor, set()), SIZE, writer).short(sheet)
    with torch.no_grad():
        u = encode(model, sheet.lesson.plans, 1)
        told = [answer(model, u, sheet.lesson, ratio=4.0, hears=[row] * 3).compression.video(0) for row in range(3)]
        untold = answer(model, u, sheet.lesson, ratio=4.0, ask=False).compression.video(2)
    pairs = {
        "questions, matched": (told[0], told[1]),
        "questions, rotated": (told[1], told[2]),
        "questions, none": (untold, untold),
        "matched to rotated": (told[2], told[0]),  # the last of the three
        "matched to none": (told[2], untold),
    }
    found = {one["kind"]: one for one in record["distances"]}
    assert found.keys() == pairs.keys()
    for kind, (one, other) in pairs.items():
        assert found[kind]["allocation"] == pytest.approx(allocation_distance(one.budgets[0], other.budgets[0]))
        expected = temporal_divergence(one.provenance().frames(), other.provenance().frames())
        assert found[kind]["temporal"] == pytest.approx(expected, abs=1e-5)
    assert found["questions, none"]["temporal"] == 0
    assert found["matched to none"]["temporal"] > 1e-6


def test_sampled_frames_are_those_frames_at_their_times(writer, world, tokenizer, model):
    sheet = write_sheet(writer, world, "test", (0,), 32)
    at = [0, 15, 31]
    fewer = writer.conversations(sheet.rows, sampled=at)
    assert torch.equal(draw(fewer.plans, "cpu"), render(sheet.scenes).frames[0, at])
    assert "0.00s,7.50s,15.50s" in tokenizer.decode(fewer.ids[0])
    assert "16.00 seconds" in tokenizer.decode(fewer.ids[0])
    with torch.no_grad():
        whole, some = (encode(model, lesson.plans, 1) for lesson in (sheet.lesson, fewer))
    assert torch.allclose(whole[:, at], some, atol=1e-5)


def test_forms_do_not_depend_on_what_is_asked_together(writer, world):
    together = write_sheet(writer, world, "test", (3, 4, 5), 16)
    alone = [row for number in (3, 4, 5) for row in write_sheet(writer, world, "test", (number,), 16).rows]
    assert [turns for _, turns in together.rows] == [turns for _, turns in alone]
    forms = {"\nA." in turns[0][0] for _, turns in together.rows}
    assert forms == {True, False}


def test_a_killed_run_goes_on_and_reports_the_same(folder, tmp_path, marked):
    whole = reproduce(options(folder, tmp_path / "whole"), load)
    assert whole["questions"]["short"] >= 7
    journal = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    assert len(journal) == 1 + 2 + 1  # what the run is, two sheets of short videos, one of long ones
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / JOURNAL).write_bytes(b"".join(journal[:3]) + journal[3][:40])
    marked.clear()
    again = reproduce(options(folder, tmp_path / "torn"), load)
    assert len(marked) == 4  # the rows of the long sheet and no other
    for name in ("controlled", "ablation", "pilot", "curve", "intervention", "gates", "families"):
        assert again["figures"][name] == whole["figures"][name]
    with pytest.raises(ValueError, match=r"would not go on as it began: seed was 0, is 1\. Put it back, or name"):
        reproduce(options(folder, tmp_path / "whole", seed=1), load)


def test_the_report_says_what_was_found(folder, tmp_path, marked):
    report = reproduce(options(folder, tmp_path), load)
    assert json.loads((tmp_path / "report.json").read_text())["figures"]["ablation"] == json.loads(
        json.dumps(report["figures"]["ablation"])
    )
    markdown, page = ((tmp_path / name).read_text() for name in ("report.md", "report.html"))
    for line in report["figures"]["ablation"]["lines"]:
        low, high = line["interval"]
        cells = f"{line['title']} | 4 | {100 * line['accuracy']:.1f} | {100 * low:.1f} to {100 * high:.1f} |"
        assert cells in markdown
    assert "python -m aviot.small.train RUN-uniform --compressor uniform" in markdown
    assert page.count("data:image/svg+xml;base64,") == 6
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"controlled.svg", "curve.svg"}
    assert report["models"]["model"]["sha256"][:12] in page


def test_fine_tuned_baselines_have_rows_of_their_own(folder, tmp_path, marked):
    report = reproduce(options(folder, tmp_path, folders={"model": folder, "uniform": folder}), load)
    controlled = report["figures"]["controlled"]
    assert [line["row"] for line in controlled["lines"] if line["title"] == "Uniform Keep, fine-tuned"] == [
        "uniform r2 fine-tuned",
        "uniform r4 fine-tuned",
    ]
    assert {one["title"] for one in controlled["missing"]} == {"Segment Mean, fine-tuned"}


def test_shares_are_those_of_the_models_own_examination(model, tokenizer, writer, world):
    """Against `accuracy`, on a model that has been made to say something: the end of every answer."""
    sheet = write_sheet(writer, world, "test", (0, 1), 16)
    record = Examiner({"model": model}, needed(SIZE, model.config.compressor, set()), SIZE, writer).short(sheet)
    found = accuracy(
        model, tokenizer, world, split="test", scenes=(0, 1), frames=16, settings=(("none", None), ("aviot", 4.0))
    )
    for setting, key in ((("none", None), "uncompressed"), (("aviot", 4.0), "aviot r4")):
        for family, right in found[setting].items():
            mine = [r for r, f in zip(record["right"][key], record["families"], strict=True) if f == family]
            assert mine == right


def test_a_model_of_other_pictures_is_refused(tmp_path):
    golden = "tests/golden/checkpoint"
    with pytest.raises(ValueError, match="pixels, those of the world have 108; name a model that aviot.small.export"):
        reproduce(options(golden, tmp_path), load)
