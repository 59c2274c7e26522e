"""Temporal grounding: benchmark files, and runs whose scores equal those of a script that shares no code with them."""

import json
from collections import defaultdict
from itertools import cycle

import pytest
from evaluation_sets import load, rows, run
from typer.testing import CliRunner

from aviot.cli import app
from aviot.engine.base import Generated
from aviot.evaluation.fields import ItemError
from aviot.evaluation.grounding.files import GROUNDING, read_grounding
from aviot.evaluation.item import Item
from aviot.evaluation.results import score_reply
from aviot.session import VideoLM

REPLIES = {
    "from 0.5s to 2s": [(0.5, 2.0)],
    "It does not happen.": [],
    "between the 1st and 3rd second": [(1.0, 3.0)],
    "[1.5, 2.5]": [(1.5, 2.5)],
    "00:00-00:01 and 00:02-00:03": [(0.0, 1.0), (2.0, 3.0)],
    "at 2 s": [(2.0, 2.0)],
    "It starts at 0.2 s and ends at 1.4 s": [(0.2, 1.4)],
}
"""Replies of the scripted decoder, and the spans that they mean in videos of at least three seconds."""

CHARADES = "v0 0.4 2.0##person opens a door.\nv1 1.0 3.5##person sits down.\n\nv0 0.0 1.0##person walks.\n"
ACTIVITYNET = {
    "v0": {"duration": 3.0, "timestamps": [[0.5, 2.5], [0.0, 1.5]], "sentences": ["A man runs.", "He falls."]},
    "v2": {"duration": 5.0, "timestamps": [[3.0, 1.0]], "sentences": [" They wave. "]},
}
QVHIGHLIGHTS = [
    {"qid": 7, "query": "A dog", "vid": "v0", "duration": 3, "relevant_windows": [[0, 1], [2, 3]], "saliency": [[1]]},
    {"qid": 9, "query": "A cat", "vid": "v1", "duration": 4, "relevant_windows": [[1, 3]]},
    {"qid": 12, "query": "A cow", "vid": "v2", "duration": 5, "relevant_windows": [[0, 2], [2, 4]]},
]
TIMELENS = [
    {"video": "v0.mp4", "duration": 3.0, "queries": [{"query": "Who?", "span": [0.5, 1.5]}]},
    {
        "video": "v1.mp4",
        "duration": 4.0,
        "queries": [{"query": "Why?", "spans": [[0, 1], [2, 3.5]]}, {"query": "Where?", "span": [1, 2]}],
    },
]
FILES = {
    "charades-sta": ("charades_sta_test.txt", CHARADES),
    "activitynet-captions": ("val_1.json", json.dumps(ACTIVITYNET)),
    "qvhighlights": ("highlight_val_release.jsonl", "".join(json.dumps(one) + "\n" for one in QVHIGHLIGHTS)),
    "timelens": ("timelens.json", json.dumps(TIMELENS)),
}


def annotated(name):
    """The video and spans of each query, read by hand."""
    if name == "charades-sta":
        return [("v0", [(0.4, 2.0)]), ("v1", [(1.0, 3.5)]), ("v0", [(0.0, 1.0)])]
    if name == "activitynet-captions":
        return [("v0", [(0.5, 2.5)]), ("v0", [(0.0, 1.5)]), ("v2", [(1.0, 3.0)])]
    if name == "qvhighlights":
        return [(one["vid"], one["relevant_windows"]) for one in QVHIGHLIGHTS]
    return [("v0", [(0.5, 1.5)]), ("v1", [(0, 1), (2, 3.5)]), ("v1", [(1, 2)])]


def naive_scores(name, results):
    """R@1 and mIoU by counting hundredths of a second."""

    def covered(spans):
        return {cell for start, end in spans for cell in range(round(100 * start), round(100 * end))}

    def share(left, right):
        return len(left & right) / len(left | right) if left | right else 0.0

    found = defaultdict(lambda: ([], []))
    truth = annotated(name)
    for row in results:
        said, spans = REPLIES[row["prediction"]], truth[row["item"]][1]
        first, unions = found[row["setting"]]
        first.append(max(share(covered(said[:1]), covered([span])) for span in spans))
        unions.append(share(covered(said), covered(spans)))
    scores = {}
    for setting, (first, unions) in found.items():
        for least in (0.3, 0.5, 0.7):
            scores[setting, f"R@1 at IoU {least}"] = sum(iou >= least for iou in first) / len(first)
        scores[setting, "mIoU"] = sum(first) / len(first)
        scores[setting, "mIoU of unions"] = sum(unions) / len(unions)
    return scores


class Scripted:
    """An engine that says the given replies in turn instead of decoding."""

    def __init__(self):
        self.replies = cycle(REPLIES)
        self.asked = 0

    def generate_scored(self, inputs, max_new_tokens, watch, reducing=None):
        self.asked += len(inputs.visual)
        return [Generated(next(self.replies)) for _ in inputs.visual]


@pytest.fixture
def write(tmp_path):
    def written(name, text=None):
        file, content = FILES[name]
        path = tmp_path / file
        path.write_text(content if text is None else text, encoding="utf-8")
        return path

    return written


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read(name, write, made):
    path = write(name)
    items = read_grounding(GROUNDING[name], path.parent, videos=made).items
    assert [(item.video.removesuffix(".mp4"), [list(span) for span in item.windows]) for item in items] == [
        (video, [list(span) for span in spans]) for video, spans in annotated(name)
    ]
    assert all(item.video.endswith(".mp4") and item.kind == "grounding" and item.problem is None for item in items)
    for item in items:
        start, end = item.prompt.span
        assert item.prompt.text[start:end] == item.question
        assert "seconds" in item.prompt.text[end:]
    assert [item.id for item in items] == (
        ["7", "9", "12"] if name == "qvhighlights" else [f"{name}-{n}" for n in (1, 2, 3)]
    )


@pytest.mark.parametrize("name", FILES)
def test_a_runs_scores_are_those_of_a_naive_script(name, write, made, tmp_path):
    path, engine = write(name), Scripted()

    def loading(model):
        return VideoLM(load(model).backbone, engine=engine)

    changes = {"items": path, "videos": made, "benchmark": name}
    summary = run(made, tmp_path / "run", loading=loading, **changes)
    results = rows(tmp_path / "run" / "results.jsonl")
    assert len(results) == 9 == engine.asked
    expected = naive_scores(name, results)
    assert {(each.setting, each.name): each.value for each in summary.measures} == pytest.approx(expected, abs=1e-9)
    assert all(each.interval[0] <= each.value <= each.interval[1] for each in summary.measures)
    assert any(0 < value < 1 for value in expected.values())
    for row in results:
        assert [tuple(span) for span in row["spans"]] == REPLIES[row["prediction"]]
    tables = (tmp_path / "run" / "summary.md").read_text()
    assert "## temporal grounding" in tables
    assert "| setting | R@1 at IoU 0.3 | R@1 at IoU 0.5 | R@1 at IoU 0.7 | mIoU | mIoU of unions | items |" in tables
    before = (tmp_path / "run" / "results.jsonl").read_bytes()
    parts = tmp_path / "run" / "parts" / "rows-0000.jsonl"
    parts.write_bytes(b"".join(parts.read_bytes().splitlines(keepends=True)[:5]))
    engine.replies = cycle(list(REPLIES)[5:] + list(REPLIES)[:5])
    run(made, tmp_path / "run", loading=loading, resume=True, **changes)
    assert engine.asked == 13
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == before


def test_the_command_runs_a_benchmark_and_repeats_it(write, made, tmp_path):
    out = tmp_path / "run"
    words = [write("qvhighlights"), "--benchmark", "qvhighlights", "-m", made / "model", "--videos", made, "-o", out]
    more = ["-r", "2", "--max-new-tokens", "3"]
    done = CliRunner().invoke(app, ["evaluate", *map(str, [*words, *more])])
    assert done.exit_code == 0, done.output
    assert "temporal grounding" in done.stdout
    again = CliRunner().invoke(app, ["evaluate", "--verify", str(out), "--sample", "2"])
    assert again.stdout == "2 of 2 answers repeat; the run holds\n"
    found = rows(out / "results.jsonl")
    assert all(row["spans"] == [] and row["iou"] == 0 and row["kind"] == "grounding" for row in found)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--benchmark", "charades"), "benchmark must be one of"),
        (("--benchmark", "timelens", "--split", "test"), "leave out the options for split"),
        (("--benchmark", "timelens", "--suite", "paper"), "leave out the options for benchmark"),
        (("--benchmark", "activitynet-captions"), "has no file of ActivityNet Captions; expected val_1.json"),
    ],
)
def test_mistakes_of_the_command(words, sentence, made, tmp_path):
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path), "-m", str(made / "model"), *words])
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("charades-sta", "v0 0.4 2.0 person opens a door.\n", "line 1: expected VIDEO START END##SENTENCE"),
        ("charades-sta", "v0 0.4 x##opens.\n", "a span must be a start and an end in seconds"),
        ("charades-sta", "v0 0.4 nan##opens.\n", "a span must be a start and an end in seconds"),
        ("charades-sta", "v0 0.4 2.0##  \n", "question must be text"),
        ("charades-sta", "", "holds no items"),
        ("activitynet-captions", "[]", "must hold an object"),
        ("activitynet-captions", '{"v": {"timestamps": [[0, 1]], "sentences": []}}', "as many timestamps as sentences"),
        (
            "activitynet-captions",
            '{"v": {"duration": "9", "timestamps": [[0, 1]], "sentences": ["x"]}}',
            "duration must",
        ),
        ("qvhighlights", '{"qid": 1, "query": "x", "vid": "v", "duration": 9}\n', "a span must be"),
        ("qvhighlights", '{"qid": 1, "query": "x", "relevant_windows": [[0, 1]]}\n', "the item has no video"),
        ("timelens", '[{"video": "v", "queries": {}}]', "expected an object with video, duration and queries"),
        ("timelens", '[{"video": "v", "queries": [{"query": "x"}]}]', "either span or spans"),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(name, text, sentence, write):
    with pytest.raises(ItemError) as raised:
        read_grounding(GROUNDING[name], write(name, text))
    assert sentence in str(raised.value)


def test_an_id_that_comes_twice_is_refused(write):
    line = json.dumps(QVHIGHLIGHTS[0]) + "\n"
    with pytest.raises(ItemError, match="the id '7' is taken by line 1"):
        read_grounding(GROUNDING["qvhighlights"], write("qvhighlights", line * 2))


def test_annotations_outside_their_video_are_cut_or_not_scored(write):
    text = json.dumps({"v": {"duration": 5.0, "timestamps": [[4.0, 6.5], [7.0, 9.0]], "sentences": ["x", "y"]}})
    cut, outside = read_grounding(GROUNDING["activitynet-captions"], write("activitynet-captions", text)).items
    assert [tuple(span) for span in cut.windows] == [(4.0, 5.0)]
    assert not outside.has_answer
    assert outside.problem == "its annotated spans have no length within the video"


def test_the_videos_own_length_bounds_a_reply_where_the_benchmark_says_none():
    item = Item("a", "v", "q", (), None, (), windows=((0.0, 4.0),))
    assert score_reply(item, "from the beginning to the end", 8.0).overlap.iou == 0.5
    assert score_reply(item, "from 0 s to 20 s", 5.0).overlap.iou == pytest.approx(0.8)
