"""A benchmark's records as the hub has them, in Parquet; pyarrow comes with lmms-eval."""

import pytest

pytest.importorskip("pyarrow", reason="records in Parquet need pyarrow: make test-lmms-eval")
import pyarrow
from pyarrow import ipc, parquet

from aviot.evaluation.benchmarks.benchmark import read_benchmark
from aviot.evaluation.benchmarks.definitions import BY_NAME

pytestmark = pytest.mark.lmms_eval


def table(question):
    picture = pyarrow.array([{"bytes": b"\0" * 9, "path": "x.png"}])
    told = {"id": ["dev_Art_1"], "question": [question], "options": [["x", "y"]], "answer": ["B"]}
    return pyarrow.table({**told, "question_type": ["multiple-choice"], "image": picture})


def test_parts_are_read_from_their_configurations(tmp_path):
    for name in ("Adaptation", "Perception"):
        (tmp_path / name).mkdir()
        parquet.write_table(table(f"{name}?"), tmp_path / name / "test-00000-of-00001.parquet")
        parquet.write_table(table("another split?"), tmp_path / name / "dev-00000-of-00001.parquet")
    (tmp_path / "Art").mkdir()
    (tmp_path / "Art" / "dev_Art_1.mp4").write_bytes(b"")
    items = read_benchmark(BY_NAME["videommmu"], tmp_path).items
    assert [(item.part, item.question, item.right) for item in items] == [
        ("adaptation", "Adaptation?", 1),
        ("perception", "Perception?", 1),
    ]
    assert {item.video for item in items} == {"Art/dev_Art_1.mp4"}


def test_a_dataset_that_was_saved_to_disk_is_read(tmp_path):
    rows = pyarrow.table({"video_path": ["a.mp4"], "question": ["When?\n(A) now\n(B) then"], "answer": ["B"]})
    folder = tmp_path / "train"
    folder.mkdir()
    with ipc.new_stream(folder / "data-00000-of-00001.arrow", rows.schema) as out:
        out.write_table(rows)
    (folder / "state.json").write_text("{}")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    (item,) = read_benchmark(BY_NAME["lvbench"], tmp_path).items
    assert (item.options, item.right) == (("now", "then"), 1)
