"""The printed and exported summary: no truncation at 80 columns, no formulas, paired differences."""

import csv
from io import StringIO

import pytest
from rich.console import Console

from aviot.evaluation.benchmarks.definitions import BY_NAME
from aviot.evaluation.intervals import difference_interval, share_interval
from aviot.evaluation.item import Item, parse_item
from aviot.evaluation.measures import check_columns, group_items
from aviot.evaluation.report import as_dict, print_summary, results_csv, summary_csv, summary_markdown
from aviot.evaluation.suite.comparison import compare, compare_settings
from aviot.evaluation.suite.report import ModelMatch, SuiteReport, as_markdown
from aviot.evaluation.summary import summarise

SETTINGS = ["none", *(f"{name}@{ratio:g}" for name in ("aviot", "uniform", "segment-mean") for ratio in (2, 12.5, 20))]
QUESTIONS = 24  # about eight videos


def made_rows(settings=SETTINGS, questions=QUESTIONS, per_video=3, **more):
    """Rows whose answers depend on setting and video."""
    return [
        {
            "item": number,
            "id": f"q{number}",
            "video": f"v{number // per_video}.mp4",
            "setting": setting,
            "method": setting.partition("@")[0],
            "ratio": float(setting.partition("@")[2] or 0) or None,
            "part": None,
            "kind": "choice",
            "answer": "B. a dog",
            "status": "answered",
            "frames": 8,
            "supports": 4,
            "tokens_before": 800,
            "tokens_after": 400,
            "prediction": "B",
            "read_as": "B",
            "how": "letter",
            "correct": (number // per_video + place) % 4 > 0,
            **more,
        }
        for number in range(questions)
        for place, setting in enumerate(settings)
    ]


def made_items(count=QUESTIONS, **columns):
    fields = {"video": "v.mp4", "question": "?"}
    return [parse_item(fields | {key: value(n) for key, value in columns.items()}, str(n)) for n in range(count)]


def summed_up(rows, items=(), **more):
    return summarise(rows, items, digest="0", videos="/videos", **more)


def printed(summary, width=80):
    console = Console(width=width, file=StringIO(), color_system=None)
    print_summary(summary, console)
    return console.file.getvalue()


def test_nothing_is_cut_at_80_columns():
    """Three ratios, three compressors and the longest measure, in a pipe."""
    judged = made_rows(kind="open", judge={"correct": True, "score": 4})
    judged[0]["judge"] = {"unjudged": "time-out"}
    text = printed(summed_up(judged, made_items(category=lambda n: ["sport", "cooking"][n % 2]), by=("category",)))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for setting in SETTINGS:
        lines = [line.split() for line in text.splitlines() if line.strip().startswith(f"{setting} ")]
        assert len(lines) >= 4, setting  # exact match, two of the judge's, tokens, and most have differences
    for heading in ("exact match", "judge: correct", "judge: score, 0 to 5", "unjudged", "exact match by category"):
        assert heading in text
    assert printed(summed_up(judged), width=30).replace("\n", "").count("segment-mean@12.5") >= 4


def test_the_default_console_of_a_pipe_cuts_nothing(capsys):
    print_summary(summed_up(made_rows()), Console())
    text = capsys.readouterr().out
    assert all(setting in text for setting in SETTINGS)
    assert "…" not in text


def test_intervals_and_differences_are_by_video():
    summary = summed_up(made_rows(["aviot@4", "none"]))
    videos = [f"v{number // 3}.mp4" for number in range(QUESTIONS)]
    right = {name: [float((n // 3 + place) % 4 > 0) for n in range(QUESTIONS)] for place, name in enumerate(("a", "b"))}
    assert summary.measures[0].interval == share_interval(right["a"], videos)
    assert summary.measures[0].videos == 8
    (apart,) = summary.differences
    gains = [a - b for a, b in zip(right["a"], right["b"], strict=True)]
    assert (apart.setting, apart.against, apart.counted) == ("aviot@4", "none", QUESTIONS)
    assert apart.value == pytest.approx(sum(gains) / QUESTIONS)
    assert apart.interval == difference_interval(gains, videos)
    assert "multiple choice: difference from none, over the same questions" in printed(summary)


def test_without_the_uncompressed_setting_the_first_is_compared_with():
    summary = summed_up(made_rows(["uniform@2", "aviot@2", "aviot@4"]))
    assert [(each.setting, each.against) for each in summary.differences] == [
        ("aviot@2", "uniform@2"),
        ("aviot@4", "uniform@2"),
    ]


def test_differences_leave_out_what_one_setting_has_no_verdict_for():
    rows = made_rows(["aviot@4", "none"], kind="open", judge={"correct": True, "score": 5})
    rows[0]["judge"] = {"unjudged": "time-out"}
    found = {each.name: each for each in summed_up(rows).differences}
    assert found["exact match"].counted == QUESTIONS
    assert found["judge: correct"].counted == QUESTIONS - 1
    assert (found["judge: score, 0 to 5"].value, found["judge: score, 0 to 5"].interval[1] <= 5) == (0.0, True)


def test_few_videos_are_said():
    one = summed_up(made_rows(["none"], questions=3))
    assert one.measures[0].interval is None
    assert "no interval where all questions are about one video" in printed(one)
    few = summed_up(made_rows(["none"], questions=6))
    assert "intervals from fewer than 10 videos (here 2) are rough" in printed(few)
    assert as_dict(few)["caveats"]
    assert not summed_up(made_rows(["none"], questions=30)).caveats


def table(data):
    return list(csv.DictReader(StringIO(data.decode(), newline="")))


def test_the_summary_as_csv():
    lines = table(summary_csv(summed_up(made_rows(), made_items(x=lambda n: n % 2), by=("x",), notes=("=note",))))
    assert [line["setting"] for line in lines if line["table"] == "score"] == SETTINGS
    apart = [line for line in lines if line["table"] == "difference"]
    assert {line["against"] for line in apart} == {"none"}
    assert float(apart[0]["low"]) < float(apart[0]["score"]) < float(apart[0]["high"])
    assert {line["value"] for line in lines if line["table"] == "group"} == {"0", "1"}
    assert next(line["note"] for line in lines if line["table"] == "note") == "'=note"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\r=1", "\r\n=1", "＝1"])
def test_text_of_strangers_is_no_formula(text):
    rows = made_rows(["none"], questions=1, prediction=text, id=text, video=text, answer=text)
    (line,) = table(results_csv(rows, made_items(1, **{"=column": lambda n: text})))
    assert "'=column" in line
    for name in ("prediction", "id", "video", "answer", "'=column"):
        assert line[name].startswith("'"), name
    assert line["correct"] in ("true", "false")
    (line,) = table(results_csv(made_rows(["none"], questions=1, ratio=-1.0), made_items(1, setting=lambda n: -5)))
    assert (line["ratio"], line["item.setting"]) == ("-1.0", "-5")  # numbers stay numbers


def test_the_summary_as_markdown():
    items = made_items(kind=lambda n: ["a|b", "<b>\nc"][n % 2])
    text = summary_markdown(summed_up(made_rows(), items, by=("kind",), notes=("resumed",)))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in tables} <= {4, 6, 7}
    assert "&lt;b> c" in text
    assert "- note: resumed" in text
    assert "| setting | score | 95 % interval | items | videos | failed |" in text


def test_groups_of_a_column():
    items = made_items(30, category=lambda n: "xyz"[n % 3], seconds=lambda n: n * 1.5, flag=lambda n: n < 2)
    assert {label: len(places) for label, places in group_items(items, "category").items()} == dict.fromkeys("xyz", 10)
    quartiles = group_items(items, "seconds")
    assert list(quartiles) == ["0 to 10.5", "12 to 21", "22.5 to 31.5", "33 to 43.5"]
    assert sorted(place for places in quartiles.values() for place in places) == list(range(30))
    assert {label: len(places) for label, places in group_items(items, "flag").items()} == {"true": 2, "false": 28}
    mixed = [*items[:2], parse_item({"video": "v", "question": "?", "category": 3}, "m")]
    assert list(group_items(mixed, "category")) == ["x", "y", "3"]
    assert group_items([*items[:2], made_items(1)[0]], "category")["(none)"] == [2]


def test_columns_that_cannot_be_groups():
    items = made_items(60, name=lambda n: f"name {n}", number=lambda n: n)
    check_columns(items, ["number"])
    with pytest.raises(ValueError, match=r"the column 'name' has 60 different values; at most 50"):
        check_columns(items, ["name"])
    with pytest.raises(ValueError, match="no item has the column 'other'; they have 'name', 'number'"):
        check_columns(items, ["other"])
    with pytest.raises(ValueError, match="they have no further columns"):
        check_columns(made_items(2), ["other"])
    parts = [Item("1", "v", "?", (), None, (), part="count")]
    assert group_items(parts, "part") == {"count": [0]}
    check_columns(parts, ["part"])


def test_a_column_of_few_distinct_numbers_that_are_far_from_even():
    items = made_items(100, length=lambda n: 0 if n < 90 else n)
    groups = group_items(items, "length")
    assert sorted(place for places in groups.values() for place in places) == list(range(100))


def test_a_limited_suite_says_so():
    rows = made_rows(["none"], part="action_count")
    (whole, part) = compare(BY_NAME["mvbench"], rows, "frames=64", is_limited=True)
    assert "1 of 20 parts: the limit leaves only action_count" in whole.notes
    assert part.part == "action_count"
    rows[0]["damage"] = {"claimed_seconds": 9.0, "missing_seconds": 3.0, "decoder_errors": 0}
    (whole, _) = compare(BY_NAME["mvbench"], rows, "frames=64")
    assert "damaged videos: 1; mvbench/summary.json lists them" in whole.notes
    report = SuiteReport(ModelMatch(False, "Another model."), "frames=64", (whole,), (), limit=24)
    assert "Only the first 24 questions of each benchmark were asked." in as_markdown(report)


def test_the_suite_compares_settings_on_the_same_questions():
    rows = made_rows(["aviot@4", "none"], part=None)
    (apart,) = compare_settings(BY_NAME["videomme"], rows)
    (expected,) = summed_up(rows).differences
    assert (apart.setting, apart.against, apart.counted, apart.videos) == ("aviot@4", "none", QUESTIONS, 8)
    assert apart.difference == pytest.approx(100 * expected.value)
    assert apart.interval == pytest.approx([100 * end for end in expected.interval])
    line = compare(BY_NAME["videomme"], rows, "frames=64")[0]
    assert line.interval == pytest.approx([100 * end for end in summed_up(rows).measures[0].interval])
    assert compare_settings(BY_NAME["videomme"], made_rows(["none"])) == []
    assert compare_settings(BY_NAME["egoschema"], made_rows(correct=None)) == []
