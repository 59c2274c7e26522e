"""A malicious video fails its item, and the run continues."""

import time

from bombs import BOMBS, slow
from evaluation_sets import load, rows, run, write_items

from aviot.evaluation import prediction
from aviot.evaluation.batching import VideoBatches
from aviot.evaluation.item import Instructions
from aviot.video import ReadLimits

SECONDS = 3


def test_bad_files_cost_their_items_and_the_run_goes_on(made, tmp_path):
    for name, content in {"slow.gif": slow(), "claims.mp4": BOMBS["samples.mp4"]()}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.mp4").symlink_to(made / "v0.mp4")
    names = ("slow.gif", "claims.mp4", "good.mp4")
    asked = [{"id": name, "video": name, "question": "What?", "answer": "red"} for name in names]
    items = write_items(tmp_path / "items.jsonl", asked)
    out = tmp_path / "run"
    run(made, out, items=items, methods=("none",), limits=ReadLimits(seconds=SECONDS))
    hung, lied, good = rows(out / "results.jsonl")
    assert (hung["status"], lied["status"], good["status"]) == ("failed", "failed", "answered")
    assert hung["reason"].startswith(f"slow.gif was not read within {SECONDS}.1 s")
    assert lied["reason"].startswith("claims.mp4 claims 30,000,000 samples")


def test_an_interrupted_run_does_not_wait_for_a_file_that_hangs(made, tmp_path):
    path = tmp_path / "slow.gif"
    path.write_bytes(slow())
    who = prediction.Predictor(load(made / "model"), Instructions(), 3)
    visits = [VideoBatches(made / "v0.mp4", "v0.mp4", ()), VideoBatches(path, "slow.gif", ())]
    reading = prediction._read_ahead(visits, who.read)
    assert len(next(reading)[1]) > 1
    begin = time.monotonic()
    reading.close()  # as Ctrl-C does
    assert time.monotonic() - begin < 5
