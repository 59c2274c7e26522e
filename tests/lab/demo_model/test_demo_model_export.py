"""A run on disk becomes a model folder that loads and answers like any other."""

import json

import pytest
import torch

from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot_lab.demo_model import export as exporting
from aviot_lab.demo_model import tokenizer as tokenizers
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.export import export
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.demo_model.log import training_summary
from aviot_lab.demo_model.optimizers import optimizers_of
from aviot_lab.demo_model.state import save_state
from aviot_lab.demo_model.tokenizer import TOKENIZER_FOLDER
from aviot_lab.demo_model.training_model import TrainingModel


def began(step, device, **more):
    line = {"began": step, "start": None, "compressor": "aviot", "data": "ab" * 32, "commit": "1234"}
    return line | {"machine": {"device": device}, "versions": {"torch": "2.11.0"}} | more


SHORT = Curriculum((Phase("patches", 2, ((1, 1),), (1e-3, 1e-3)), Phase("whole", 40, ((1, 16),), (1e-3, 0.0))))
LOG = [
    began(0, "GPU A"),  # killed
    began(0, "GPU B"),
    {"ended": 20, "seconds": 1000.0},
    began(20, "GPU C"),
    {"step": 20, "task": "whole", "language": 0.5, "right": 0.25, "step_ms": 3.0},
    {"step": 40, "task": "whole", "language": 0.375, "right": 0.5, "step_ms": 3.0},
    {"ended": 40, "seconds": 234.4},
    {"step": 20, "frames": 16, "compressor": "none", "ratio": None, "questions": 9, "right": 0.111, "families": {}},
    {"step": 40, "frames": 64, "compressor": "aviot", "ratio": 4.0, "questions": 432, "right": 0.753, "families": {}},
]


def test_an_exported_run_loads_and_says_what_it_is(tmp_path, monkeypatch, tokenizer):
    training_model = TrainingModel(new_model(tokenizer, seed=5), tokenizer, "aviot")
    tokenizer.save_pretrained(tmp_path / "run" / TOKENIZER_FOLDER)
    monkeypatch.delattr(tokenizers, "build_tokenizer")  # a later one may number its pieces in another way
    save_state(tmp_path / "run", training_model, optimizers_of(training_model), 40)
    (tmp_path / "run" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LOG))
    target = tmp_path / "model"
    export(tmp_path / "run", target)
    again = AviotForConditionalGeneration.from_pretrained(target)
    for (name, mine), theirs in zip(training_model.model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(mine.to(torch.bfloat16), theirs), name
    assert again.generation_config.eos_token_id == tokenizer.eos_token_id
    assert AviotProcessor.from_pretrained(target).tokenizer("A red star?") == tokenizer("A red star?")
    assert (target / "model.safetensors").stat().st_size < 16e6
    assert len({path.stat().st_mode for path in target.iterdir()}) == 1
    card = (target / "README.md").read_text()
    assert "- whole, step 40: language 0.375, right 0.5\n" in card
    assert "| 40 | 64 | aviot | 4 | 432 | 75.3% |" in card
    assert "11.1%" not in card  # an earlier examination
    assert "`python -m aviot_lab.demo_model.train RUN`, 40 steps" in card
    assert "1,234 s in all, in 2 piece" in card
    assert "- from step 0 to 20 in 1,000 s on GPU B, torch 2.11.0, commit 1234, data abababababababab" in card
    assert "- from step 20 to 40 in 234 s on GPU C" in card
    assert "GPU A" not in card
    assert "has changed since" in card  # no curriculum has such a fingerprint
    assert "ab" * 32 in card
    assert [json.loads(line) for line in (target / "training.jsonl").read_text().splitlines()] == LOG
    assert "knows its own world and nothing else" in card


def test_a_card_says_what_a_baseline_began_from(tmp_path, tokenizer, narrow):
    training_model = TrainingModel(new_model(tokenizer, seed=5), tokenizer, "uniform")
    tokenizer.save_pretrained(tmp_path / "run" / TOKENIZER_FOLDER)
    save_state(tmp_path / "run", training_model, optimizers_of(training_model), 40)
    data = data_fingerprint(SHORT, tokenizer)
    log = [began(20, "GPU", start="RUN", compressor="uniform", data=data), {"ended": 40, "seconds": 1.0}]
    earlier = [began(10, "GPU", start="RUN", compressor="uniform"), {"ended": 20, "seconds": 1.0}]
    (tmp_path / "run" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    export(tmp_path / "run", tmp_path / "model", SHORT)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "`python -m aviot_lab.demo_model.train RUN --start RUN --compressor uniform`" in card
    assert "has changed since" not in card
    assert "changed from one piece to another" not in card
    (tmp_path / "run" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in earlier + log))
    export(tmp_path / "run", tmp_path / "model", SHORT)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "has changed since" not in card
    assert "changed from one piece to another" in card


def test_a_folder_without_a_run_is_refused(tmp_path, monkeypatch, capsys, narrow):
    monkeypatch.setattr("sys.argv", ["export", str(tmp_path), str(tmp_path / "model")])
    with pytest.raises(SystemExit, match="2"):
        exporting.main()
    assert "has no state.json; name the folder of a run" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "state",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"step": 1, "files": [], "updates": {}}',
        '{"step": 1, "files": ["gone"], "updates": {}}',
        '{"step": 1, "files": ["../elsewhere.safetensors"], "updates": {}}',
    ],
)
def test_a_run_that_cannot_be_read_is_named(tmp_path, tokenizer, narrow, state):
    run = tmp_path / "run"
    tokenizer.save_pretrained(run / TOKENIZER_FOLDER)
    (run / "state.json").write_text(state)
    with pytest.raises(ValueError, match=r"the run in \S+run cannot be read \(.*\); copy it again, or begin another"):
        export(run, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_an_export_takes_the_place_of_an_earlier_one_and_of_nothing_else(tmp_path, tokenizer, narrow):
    run = tmp_path / "run"
    training_model = TrainingModel(new_model(tokenizer, seed=5), tokenizer, "aviot")
    tokenizer.save_pretrained(run / TOKENIZER_FOLDER)
    save_state(run, training_model, optimizers_of(training_model), 40)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("MY NOTES")
    for target in (tmp_path / "mine", run):
        before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
        with pytest.raises(ValueError, match="has files that are not an earlier export; name a new folder"):
            export(run, target)
        assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    for log in (b"", b'{"began": 0}\n{"ended": 2'):  # torn by a kill: what it lacks is no piece
        (run / "log.jsonl").write_bytes(log)
        export(run, tmp_path / "model", SHORT)
    assert "Where and for how long is not in the log." in (tmp_path / "model" / "README.md").read_text()


def test_pieces_that_were_killed_do_not_count_and_compressors_all_do(tmp_path):
    lines = [
        began(20, "GPU"),  # killed, and forgotten what it was to be told
        began(20, "GPU", start="RUN", compressor="uniform"),
        {"ended": 30, "seconds": 1.0},
        began(30, "GPU", compressor="uniform"),
        {"ended": 40, "seconds": 1.0},
    ]
    assert exporting._options(lines) == " --start RUN --compressor uniform"
    curves = tmp_path / "training.jsonl"
    for more, compressor, steps in (([], "uniform", 40), ([began(40, "GPU")], "uniform", 40)):
        curves.write_text("".join(json.dumps(line) + "\n" for line in lines + more))
        assert training_summary(tmp_path) == (compressor, steps)
    curves.write_text("".join(json.dumps(line) + "\n" for line in [*lines, began(40, "GPU"), {"ended": 50}]))
    assert training_summary(tmp_path) == ("uniform and aviot", 50)
    curves.unlink()
    assert training_summary(tmp_path) is None
