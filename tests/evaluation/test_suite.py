"""The paper's scores as stored, and the suite over directories in the benchmarks' formats."""

import itertools
import json
import re
import shutil
from statistics import mean

import pytest
from evaluation_sets import rows, write_items
from forked import run_forked
from killed_worker import aviot as in_a_process
from test_evaluate_command import aviot

from aviot.evaluation.benchmarks.benchmark import read_benchmark, record_files
from aviot.evaluation.benchmarks.definitions import BENCHMARKS, BY_NAME
from aviot.evaluation.config import Setting
from aviot.evaluation.fields import ItemError
from aviot.evaluation.run import Prepared, read_results
from aviot.evaluation.suite.comparison import (
    BenchmarkScore,
    compare,
    paper_score,
    paper_sweep,
    paper_tables,
    sampling_name,
)
from aviot.evaluation.suite.report import ModelMatch, NotRun, SuiteReport, as_markdown
from aviot.evaluation.verify import recorded_config
from aviot.utils.journal import JournalError

DENSE, FIXED = "fps=2,max_frames=224", "frames=64"
NUMBERS = itertools.count()
NAMES = [benchmark.name for benchmark in BENCHMARKS]


def scores(label):
    return next(table["scores"] for table in paper_tables() if table["label"] == label)


def at(name, sampling, compressor, ratio, part=None):
    return paper_score(name, sampling, Setting(compressor, ratio), part).score


def test_the_tables_agree_with_each_other_and_with_the_papers_sentences():
    for name in NAMES:
        assert at(name, DENSE, "aviot", 4.0) == scores("tab:supp_ratio_results")["aviot"]["4"][name]
        assert len(list(paper_sweep(name, DENSE))) in (10, 16)
    five = ("videomme", "videommmu", "mvbench", "nextqa", "perceptiontest")
    for ratio, expected in ((2, 64.38), (10, 62.27), (20, 60.74)):
        assert mean(at(name, DENSE, "aviot", ratio) for name in five) == pytest.approx(expected, abs=0.006)
    controlled = scores("tab:fixed64_results")
    plain = controlled["none"][""]
    for ratio, gain in (("2", 2.36), ("4", 1.02), ("10", -1.12)):
        assert mean(controlled["aviot"][ratio][n] - plain[n] for n in plain) == pytest.approx(gain, abs=0.006)
    for ratio in ("2", "4", "10"):
        parts = dict(scores("tab:supp_mvbench_tasks")["aviot"][ratio])
        assert mean(value for name, value in parts.items() if name != "overall") == pytest.approx(
            parts["overall"], abs=0.006
        )
        assert parts["overall"] == controlled["aviot"][ratio]["mvbench"]
        for compressor, by_ratio in scores("tab:supp_tempcompass").items():
            four = dict(by_ratio[ratio])
            assert four.pop("average") == pytest.approx(mean(four.values()), abs=0.006), compressor


def test_every_part_of_mvbench_and_tempcompass_has_its_figure():
    for name in ("mvbench", "tempcompass"):
        for part in BY_NAME[name].parts:
            assert at(name, FIXED, "aviot", 10.0, part.name) > 0
    assert at("mvbench", FIXED, "aviot", 10.0, "moving_direction") == 29.5
    assert paper_score("mvbench", DENSE, Setting("aviot", 10.0), "moving_direction") is None
    assert paper_score("lvbench", FIXED, Setting("aviot", 4.0)) is None
    assert paper_score("videomme", DENSE, Setting("none", None)).score == 63.3


@pytest.fixture(scope="module")
def data(made, tmp_path_factory):
    """Six of the ten in their own formats, over the three videos; one video is missing, one is broken."""
    folder = tmp_path_factory.mktemp("data")
    AB = ["A. red", "B. blue"]
    mvbench = {"question": "Which?", "candidates": ["x", "y"], "answer": "y"}
    records = {
        "videomme/videomme/test-00000-of-00001.jsonl": [
            {"videoID": "v0", "question": "What?", "options": AB, "answer": "B"},
            {"videoID": "v0", "question": "Why?", "options": AB, "answer": "A"},
            {"videoID": "gone", "question": "Who?", "options": AB, "answer": "A"},
        ],
        "mvbench/json/action_count.json": [mvbench | {"video": "same.mp4"}],
        "mvbench/json/moving_count.json": [mvbench | {"video": "same.mp4"}],
        "tempcompass/multi-choice/test.jsonl": [
            {"video_id": "v1", "question": "What?\nA. x\nB. y", "answer": "A. x", "dim": "action"}
        ],
        "tempcompass/yes_no/test.jsonl": [{"video_id": "v1", "question": "Is it?", "answer": "no", "dim": "order"}],
        "activitynetqa/test.jsonl": [{"video_name": "abc", "question": "who is it", "answer": "a man"}],
        "egoschema/GENERATION/test.jsonl": [{"video_idx": "v1", "question": "Why?", "option": AB, "answer": None}],
        "lvbench/train.jsonl": [
            {"video_path": "deep/broken.mp4", "question": "When?\n(A) now\n(B) then", "answer": "B"}
        ],
    }
    for name, lines in records.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text(json.dumps(lines))
        else:
            write_items(path, lines)
    places = {
        "v0": "videomme/data/v0.mp4",
        "v1": "tempcompass/videos/v1.mp4",
        "v2": "mvbench/video/perception/videos/same.mp4",
        "v1 ": "mvbench/video/clevrer/video_validation/same.mp4",
        "v0 ": "activitynetqa/all_test/v_abc.mp4",
        "v1  ": "egoschema/videos/v1.MP4",
        "broken": "lvbench/deep/broken.mp4",
    }
    for name, place in places.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes((made / f"{name.strip()}.mp4").read_bytes())
    (folder / "nextqa").mkdir()
    return folder


@pytest.fixture(scope="module")
def ran(made, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("suite") / "run"
    words = ("--suite", "paper", "-m", made / "model", "--max-new-tokens", 1, "--out", out)
    done = aviot(data, *words, "--compressor", "aviot", "--compressor", "none")
    assert done.exit_code == 0, done.output
    return done, out, words


def test_records_and_videos_are_found_by_name(data):
    found = read_benchmark(BY_NAME["mvbench"], data / "mvbench")
    videos = {item.part: item.video for item in found.items}
    assert videos == {
        "action_count": "video/perception/videos/same.mp4",
        "moving_count": "video/clevrer/video_validation/same.mp4",
    }
    assert [item.video for item in read_benchmark(BY_NAME["videomme"], data / "videomme").items] == [
        "data/v0.mp4",
        "data/v0.mp4",
        "gone.mp4",
    ]
    assert read_benchmark(BY_NAME["egoschema"], data / "egoschema").items[0].video == "videos/v1.MP4"


def test_the_table_says_whose_model_it_is_and_what_is_missing(ran):
    done, out, _ = ran
    text = (out / "suite.md").read_text()
    assert text.strip() == done.stdout.strip()
    assert "This model is not the paper's (decoder hidden_size 32 instead of 3584" in text
    assert "score (not the paper's model)" in text
    missing = set(re.findall(r"^\| ([^|]+) \| no (?:directory|records)[^|]* \| [\d.]+ \(aviot@4\) \|$", text, re.M))
    assert missing == {"Video-MMMU", "NExT-QA", "Perception Test", "LongVideoBench"}
    assert "no records in nextqa (split test)" in text
    assert "exact match; the paper's figure is a GPT-4o judge's" in text
    assert "another checkpoint" in text
    assert "1 of 3 questions could not be asked, such as videomme-3: there is no file gone.mp4" in text
    assert re.search(r"\| MVBench \[\d\] \| aviot@4 \| .* \| 61.58 \| ", text)
    assert "2 of 20 parts: the directory holds only action_count, moving_count" in text
    assert "caption matching and captioning are left to lmms-eval" in text
    assert all((out / name).stat().st_size > 1000 for name in ("scores.png", "ratios.png"))


def test_figures_differences_and_intervals(ran):
    _, out, _ = ran
    report = json.loads((out / "suite.json").read_text())
    assert report["sampling"] == DENSE
    assert not report["model"]["may_be_the_papers"]
    line = next(each for each in report["lines"] if each["benchmark"] == "videomme" and each["setting"] == "aviot@4")
    assert (line["counted"], line["failed"], line["paper"]) == (3, 1, 63.89)
    right = sum(row["correct"] for row in rows(out / "videomme" / "results.jsonl") if row["setting"] == "aviot@4")
    assert line["score"] == pytest.approx(100 * right / 3)
    assert line["difference"] == pytest.approx(line["score"] - 63.89)
    assert line["difference_interval"] == pytest.approx([end - 63.89 for end in line["interval"]])
    (apart,) = (each for each in report["differences"] if each["benchmark"] == "videomme")
    assert (apart["setting"], apart["against"], apart["counted"], apart["videos"]) == ("aviot@4", "none", 3, 2)
    assert apart["interval"][0] <= apart["difference"] <= apart["interval"][1]
    assert "## Between settings" in (out / "suite.md").read_text()
    assert "intervals from fewer than 10 videos" in (out / "suite.md").read_text()
    ego = next(each for each in report["lines"] if each["benchmark"] == "egoschema")
    assert (ego["score"], ego["difference"], ego["without_answer"]) == (None, None, 1)
    broken = next(each for each in report["lines"] if each["benchmark"] == "lvbench")
    assert (broken["failed"], broken["score"]) == (1, 0.0)
    temporal = [(each["part"], each["counted"]) for each in report["lines"] if each["benchmark"] == "tempcompass"]
    assert temporal == [(None, 1), (None, 1), ("multi-choice", 1), ("multi-choice", 1), ("yes_no", 1), ("yes_no", 1)]


@pytest.mark.parametrize(("sampling", "name"), [({"fps": 2.0, "max_frames": 224}, DENSE), ({"frames": 64}, FIXED)])
def test_keyframes_are_not_the_papers_sampling(sampling, name):
    assert sampling_name(sampling) == name
    assert paper_score("videomme", name, Setting("aviot", 4.0)) is not None
    keyframes = sampling_name(sampling | {"sampling": "keyframes"})
    assert keyframes == f"{name},keyframes"
    assert paper_score("videomme", keyframes, Setting("aviot", 4.0)) is None


def test_runs_have_the_papers_sampling_and_the_benchmarks_prompts_and_verify(ran):
    _, out, _ = ran
    same = json.loads((out / "videomme" / "manifest.json").read_text())["identity"]
    assert (same["sampling"]["fps"], same["sampling"]["max_frames"]) == (2.0, 224)
    assert same["items"]["benchmark"] == "videomme"
    done = aviot("--verify", out / "mvbench")
    assert done.exit_code == 0, done.output


def test_a_suite_is_resumed_where_it_stopped(ran, data):
    _, out, words = ran
    shutil.rmtree(out / "lvbench")
    (out / "egoschema" / "results.jsonl").unlink()
    before = (out / "suite.md").read_bytes()
    (out / "suite.md").unlink()
    again = aviot(data, *words, "--compressor", "aviot", "--compressor", "none", "--resume")
    assert again.exit_code == 0, again.output
    assert (out / "suite.md").read_bytes() == before


def test_a_suite_does_not_count_what_was_edited(ran, data):
    """Results are written again from the rows; rows that are not the run's are refused."""
    _, out, words = ran
    again = (data, *words, "--compressor", "aviot", "--compressor", "none", "--resume")
    results, before = out / "videomme" / "results.jsonl", (out / "suite.json").read_bytes()
    first = rows(results)[0]
    write_items(results, [*rows(results), first | {"item": 9999}, first | {"setting": "magic@4"}])
    assert aviot(*again).exit_code == 0
    assert (out / "suite.json").read_bytes() == before
    part = out / "videomme" / "parts" / "rows-0000.jsonl"
    whole = part.read_bytes()
    for change, sentence in (({"item": 9999}, "its item is 9999"), ({"setting": "magic"}, "its setting is 'magic'")):
        write_items(part, [*rows(part), first | change])
        done = aviot(*again)
        part.write_bytes(whole)
        assert (done.exit_code, sentence in " ".join(done.stderr.split())) == (2, True)


def test_what_the_suite_reads_is_checked_once_more(ran, data):
    """Another process may have left results that nothing is written over."""
    _, out, _ = ran
    results = out / "videomme" / "results.jsonl"
    whole = results.read_bytes()
    prepared = Prepared.of(recorded_config(out / "videomme"))
    assert len(read_results(prepared)) == 6
    for text in (whole + whole.splitlines(keepends=True)[0], whole[: whole.index(b"\n") + 1]):
        results.write_bytes(text)
        with pytest.raises(JournalError, match="must have 6 rows, each once"):
            read_results(prepared)
    results.write_bytes(whole)


def test_strangers_words_in_the_table_are_text(ran):
    row_id = "a|b<c>[d](http://e)\x1b[2J\n# f"
    line = BenchmarkScore(
        "b", "t", "p|q", "s", None, None, None, 0, 0, 0, 0, None, None, None, None, notes=(f"like {row_id}: r",)
    )
    text = as_markdown(SuiteReport(ModelMatch(False, "."), "fps=2", (line,), (NotRun("m", "M", row_id, ""),)))
    assert text.count(r"a\|b&lt;c>\[d](http://e)" + "\N{REPLACEMENT CHARACTER}" + r"\[2J # f") == 2
    assert r"t: p\|q" in text


def test_two_processes_make_the_same_table(ran, made, data, tmp_path):
    _, out, _ = ran
    words = ["--suite", "paper", "-m", made / "model", "--max-new-tokens", 1, "--out", tmp_path / "run"]
    arguments = ["evaluate", data, *words, "--compressor", "aviot", "--compressor", "none"]
    environments = tuple({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2))
    both = run_forked(in_a_process, *map(str, arguments), environments=environments)
    assert [process.returncode for process in both] == [0, 0], both
    assert [process.stdout.strip() for process in both if process.stdout] == [(out / "suite.md").read_text().strip()]
    for name in ("suite.md", "videomme/results.jsonl", "mvbench/results.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (out / name).read_bytes()


def test_fixed_frames_are_put_beside_the_controlled_comparison(made, data, tmp_path):
    only = tmp_path / "data"
    only.mkdir()
    (only / "mvbench").symlink_to(data / "mvbench")
    words = ("--suite", "paper", "-m", made / "model", "--max-new-tokens", 1, "--frames", 64, "--json")
    done = aviot(only, *words, "--out", tmp_path / "run", "--compressor", "uniform")
    assert done.exit_code == 0, done.output
    lines = json.loads(done.stdout)["lines"]
    whole = {each["setting"]: each["paper"] for each in lines if each["part"] is None}
    assert whole == {"uniform@2": 60.75, "uniform@4": 58.4, "uniform@10": 55.12}
    assert {each["part"] for each in lines} == {None, "action_count", "moving_count"}


def row(part, correct, status="answered", **more):
    made = {"setting": "aviot@4", "method": "aviot", "ratio": 4.0, "part": part, "correct": correct}
    return (
        made
        | {"item": next(NUMBERS), "video": "v.mp4"}
        | {
            "status": status,
            **more,
        }
    )


def test_a_judge_decides_where_there_is_one():
    rows_judged = [
        row(None, False, judge={"correct": True, "score": 5}),
        row(None, True, judge={"correct": False, "score": 0}),
        row(None, True, judge={"correct": True, "score": 4}),
        row(None, True, judge={"unjudged": "time-out"}),
        row(None, False, status="failed", id="x-5", reason="no file"),
    ]
    (line,) = compare(BY_NAME["activitynetqa"], rows_judged, DENSE)
    assert (line.counted, line.score, line.paper, line.answered) == (4, 50.0, 68.23, 4)
    assert line.notes == (
        "1 of 5 questions could not be asked, such as x-5: no file; activitynetqa/summary.json lists all",
        "1 of 5 answers were not judged and are not in the figure; resume the run to ask the judge again",
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("{data}", "--suite", "other"), "--suite must be paper"),
        (("{data}/nowhere", "--suite", "paper"), "is not a directory"),
        (("{data}/nextqa", "--suite", "paper"), "holds none of the benchmarks"),
        (("{data}", "--suite", "paper", "--split", "test"), "leave out the options for split"),
        (("{data}", "--suite", "paper", "--max-new-tokens", "0"), "max_new_tokens must be"),
    ],
)
def test_suite_mistakes(made, data, tmp_path, words, sentence):
    arguments = [word.format(data=data) for word in words]
    done = aviot(*arguments, "-m", made / "model", "--out", tmp_path / "run")
    assert done.exit_code == 2, done.output
    assert sentence in done.stderr


def test_a_suite_that_could_ask_nothing_is_exit_code_1(made, tmp_path):
    (tmp_path / "videomme").mkdir()
    record = {"videoID": "gone", "question": "?", "options": ["a", "b"], "answer": "A"}
    write_items(tmp_path / "videomme" / "test.jsonl", [record])
    done = aviot(tmp_path, "--suite", "paper", "-m", made / "model", "--out", tmp_path / "run")
    assert done.exit_code == 1
    assert "no question could be asked" in done.stderr


def test_another_split_is_not_taken_for_the_benchmarks(tmp_path):
    (part,) = BY_NAME["longvideobench"].parts
    names = ("test-00000-of-00001.jsonl", "lvb_val.jsonl", "validation-00000-of-00001.jsonl")
    for count, found in enumerate(([], ["lvb_val.jsonl"], ["validation-00000-of-00001.jsonl"]), 1):
        (tmp_path / names[count - 1]).touch()
        assert [path.name for path in record_files(tmp_path, part, is_only_part=True)] == found


def test_what_is_no_record_is_named(tmp_path):
    write_items(tmp_path / "test.jsonl", [{"question": "What?", "options": ["a", "b"], "answer": "A"}])
    with pytest.raises(ItemError, match=r"test.jsonl, line 1: it is not a record of videomme: KeyError 'videoID'"):
        read_benchmark(BY_NAME["videomme"], tmp_path)
