"""Runs that train adapters: lower losses, exact resumption, loading on the right base alone, and wrong settings."""

import json
import logging
import shutil

import pytest
import torch
import yaml
from adapting import config, save_model, save_records, values
from safetensors.torch import load_file, save_file
from tiny import config as whole_config
from tiny import forked, lines
from typer.testing import CliRunner

from aviot import CompressorConfig, VideoLM
from aviot.backbones.checkpoints.adapter import weights_digest
from aviot.backbones.checkpoints.folder import CheckpointError
from aviot.backbones.huggingface.adapters import new_parts
from aviot.backbones.qwen2_vl import Qwen2_5VL
from aviot.cli import app
from aviot.data import BatchLayout, Corpus
from aviot.training.adapted_setup import StartingModel, check_trainable, load_adapted
from aviot.training.config_files import Parallelism
from aviot.training.datasets import training_data
from aviot.training.run import train

QWEN2, QWEN3 = "qwen2.5-vl", "qwen3-vl"
LORA = {"rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj", "down_proj"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("adapters")
    (made / "set").mkdir()
    save_records(made / "set")
    for family in (QWEN2, QWEN3):
        save_model(family, made / family)
    return made


@pytest.fixture(scope="module")
def run(folder):
    """A run of stage compressor on Qwen2.5-VL, with two checkpoints."""
    chosen = config(folder, QWEN2, output=str(folder / "parts"), optimization={"steps": 6}, saving={"every": 3})
    return chosen, train(chosen)


@pytest.fixture(scope="module")
def lora_run(folder):
    """A run with low-rank adapters on Qwen3-VL."""
    changes = {"stage": "joint", "lora": LORA, "optimization": {"steps": 6}, "saving": {"every": 3}}
    chosen = config(folder, QWEN3, output=str(folder / "lora"), gradient_checkpointing=True, **changes)
    return chosen, train(chosen)


def test_training_lowers_the_loss_and_writes_only_what_was_trained(run):
    _, last = run
    losses = [line["loss"] for line in lines(last)]
    assert losses[-1] < losses[0] - 0.01
    assert {path.name for path in last.glob("*.safetensors")} == {"aviot.safetensors"}
    names = load_file(last / "aviot.safetensors")
    assert {name.split(".")[0] for name in names} == {"compressor", "question_projection"}
    assert not torch.equal(names["question_projection.weight"], torch.eye(32))
    about = json.loads((last / "aviot_adapter.json").read_text())
    assert about["base"]["family"] == QWEN2
    assert about["base"]["weights_sha256"] == weights_digest(last.parents[1] / QWEN2)


def test_adapters_lower_the_loss_further(lora_run):
    _, last = lora_run
    losses = [line["lm_loss"] for line in lines(last)]
    assert losses[-1] < losses[0] - 0.5
    saved = load_file(last / "adapter" / "adapter_model.safetensors")
    assert saved
    assert all(".lora_" in name for name in saved)


@pytest.mark.parametrize("which", ["run", "lora_run"])
def test_resuming_is_exact(which, request, folder, tmp_path):
    chosen, last = request.getfixturevalue(which)
    output = tmp_path / "again"
    shutil.copytree(last.parent, output)
    shutil.rmtree(output / last.name)
    values = chosen.to_dict() | {"output": str(output)}
    resumed = train(type(chosen).from_dict(values), resume="last-good")
    assert [line["loss"] for line in lines(resumed)] == [line["loss"] for line in lines(last)]
    for path in (*last.glob("*.safetensors"), *last.glob("adapter/*.safetensors")):
        assert path.read_bytes() == (resumed / path.relative_to(last)).read_bytes()
    states = [torch.load(each / "optimizer.pt", weights_only=True)["state"] for each in (last, resumed)]
    assert all(torch.equal(states[0][n]["exp_avg"], states[1][n]["exp_avg"]) for n in states[0])


def test_a_checkpoint_without_what_was_trained_is_not_resumed_from(run, tmp_path):
    """Neither with its manifest nor without one."""
    chosen, last = run
    output = shutil.copytree(last.parent, tmp_path / "run")
    (output / last.name / "aviot.safetensors").unlink()
    again = type(chosen).from_dict(chosen.to_dict() | {"output": str(output)})
    with pytest.raises(ValueError, match=r"checkpoint-6 is damaged: aviot\.safetensors is missing"):
        train(again, resume=True)
    (output / last.name / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-6 is damaged: aviot\.safetensors is missing"):
        train(again, resume=output / last.name)


def test_two_processes_have_the_losses_of_one(run, folder):
    changes = {"optimization": {"steps": 6, "micro_batch": 1}, "saving": {"every": 6}}
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump(values(folder, QWEN2, output=str(folder / "two"), **changes)))
    ended = forked(path, processes=2)
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr
    losses = [line["loss"] for line in lines(folder / "two" / "checkpoint-6")]
    assert losses == pytest.approx([line["loss"] for line in lines(run[1])], rel=1e-6)


@pytest.mark.parametrize("which", ["run", "lora_run"])
def test_a_loaded_adapter_is_the_trained_model(which, request, folder, caplog):
    """The loaded model has the logits of the one that was trained, and does not say that it is untrained."""
    chosen, last = request.getfixturevalue(which)
    source = StartingModel.of(chosen)
    trained, processor = load_adapted(chosen, source, source.digest(), last)
    trained.eval()
    data = training_data(chosen, Corpus.open(chosen.data), trained, processor, BatchLayout(4))
    batch = data.collate([data.dataset[0]])
    with caplog.at_level(logging.WARNING), torch.no_grad():
        lm = VideoLM.from_pretrained(last, device="cpu")
        assert lm.backbone.processing.sampling() == {"fps": 2.0, "max_frames": 224}
        expected = trained(**data.trained.inputs(batch, encoded=False))
        trained.backbone = lm.backbone
        trained.base = lm.backbone.model
        found = trained(**data.trained.inputs(batch, encoded=False))
    assert torch.equal(found.logits, expected.logits)
    assert lm.backbone.method("aviot").name == "aviot"
    assert "runs instead" not in caplog.text
    untrained = VideoLM.from_pretrained(source.base, device="cpu").backbone
    with caplog.at_level(logging.WARNING):
        assert [untrained.method("aviot").name for _ in range(2)] == ["aviot-free"] * 2
    assert caplog.text.count("has not been trained for this") == 1
    trained.backbone, trained.base = untrained, untrained.model
    untrained.install(new_parts(CompressorConfig(dim=untrained.width)))
    with torch.no_grad():
        assert not torch.equal(trained(**data.trained.inputs(batch, encoded=False)).logits, expected.logits)


def test_another_base_is_refused_by_name(run, lora_run, folder, tmp_path):
    _, last = run
    with pytest.raises(
        CheckpointError, match=rf"trained for the family {QWEN2} and .* and .*{QWEN3} is of the family {QWEN3}; "
    ):
        VideoLM.from_pretrained(last, base=folder / QWEN3)
    other = shutil.copytree(folder / QWEN2, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"weights \w{12}…, and the weights in .*other are \w{12}…; name"):
        VideoLM.from_pretrained(last, base=other)
    moved = shutil.copytree(last, tmp_path / "moved")
    about = json.loads((moved / "aviot_adapter.json").read_text())
    about["base"]["path"] = str(tmp_path / "gone")
    (moved / "aviot_adapter.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"family qwen2.5-vl, which was not found: .*\(base\)"):
        VideoLM.from_pretrained(moved)
    assert VideoLM.from_pretrained(moved, base=folder / QWEN2, device="cpu").backbone.family == QWEN2
    with pytest.raises(CheckpointError, match="is a whole model, not an adapter"):
        VideoLM.from_pretrained(folder / QWEN2, base=folder / QWEN2)


def test_the_digest_is_of_tensors_whatever_their_files(folder, tmp_path):
    whole = folder / QWEN2
    weights = load_file(whole / "model.safetensors")
    names, parts = sorted(weights), tmp_path / "parts"
    parts.mkdir()
    index = {}
    for number, some in enumerate((names[::2], names[1::2])):
        save_file({name: weights[name] for name in some}, parts / f"part-{number}.safetensors")
        index |= dict.fromkeys(some, f"part-{number}.safetensors")
    (parts / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert weights_digest(parts) == weights_digest(whole)
    weights["new"] = weights.pop(names[0])
    save_file(weights, parts / "model.safetensors")
    (parts / "model.safetensors.index.json").unlink()
    assert weights_digest(parts) != weights_digest(whole)


def damaged(last, tmp_path, file, change):
    copy = shutil.copytree(last, tmp_path / "damaged")
    weights = load_file(copy / file)
    change(weights)
    save_file(weights, copy / file)
    return copy


def test_damaged_adapters_are_refused(run, lora_run, tmp_path):
    _, last = run
    lost = damaged(last, tmp_path / "a", "aviot.safetensors", lambda weights: weights.pop("question_projection.weight"))
    with pytest.raises(CheckpointError, match=r"1 tensors differ in name or shape .* question_projection\.weight"):
        VideoLM.from_pretrained(lost, device="cpu")
    infinite = lambda weights: weights["question_projection.weight"].fill_(float("inf"))  # noqa: E731
    with pytest.raises(CheckpointError, match=r"question_projection\.weight is not finite"):
        VideoLM.from_pretrained(damaged(last, tmp_path / "b", "aviot.safetensors", infinite), device="cpu")
    larger = shutil.copytree(lora_run[1], tmp_path / "c")
    about = json.loads((larger / "aviot_adapter.json").read_text())
    about["lora"]["rank"] = 1_000_000
    (larger / "aviot_adapter.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"expected matrices of rank 1000000, got \[4\]"):
        VideoLM.from_pretrained(larger, device="cpu")


def test_training_goes_on_from_an_adapter(run, folder):
    """Low-rank adapters are trained on top of AVIOT's trained parts, which the run starts from."""
    _, last = run
    changes = {"stage": "joint", "lora": LORA, "compressor": None, "optimization": {"steps": 1}}
    further = train(config(folder, QWEN2, model=str(last), output=str(folder / "further"), **changes))
    assert lines(further)[0]["transport_loss"] < lines(last)[0]["transport_loss"]
    about = json.loads((further / "aviot_adapter.json").read_text())
    assert about["base"]["path"] == str(folder / QWEN2)
    assert about["lora"]["rank"] == 4


REFUSED = [
    ({"stage": "joint"}, 'stage "joint" would train all weights of a qwen2.5-vl model'),
    ({"stage": "compressor", "lora": {}}, 'which stage "compressor" does not train'),
    ({"stage": "joint", "lora": {"targets": ["q_prof"]}}, r"lora.targets must name linear layers .* got q_prof"),
    ({"compressor": {"dim": 3}}, "compressor.dim follows from the model"),
    ({"compressor": {"cost_dim": 3}}, "compressor: cost_dim must be even"),
    ({"model": "nowhere"}, "nowhere: no such folder"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_wrong_settings_are_refused_before_weights_are_read(folder, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr("aviot.training.run.load_adapted", None)
    monkeypatch.setattr("aviot.training.adapted_setup.weights_digest", None)
    with pytest.raises(ValueError, match=message):
        train(config(folder, QWEN2, output=str(tmp_path / "run"), **{"compressor": None} | changes))
    assert not (tmp_path / "run").exists()


def test_other_kinds_of_parallelism_are_refused(folder, tmp_path):
    chosen = config(folder, QWEN2, output=str(tmp_path / "run"))
    with pytest.raises(ValueError, match=r"fsdp is not supported for qwen2\.5-vl models"):
        check_trainable(chosen, Parallelism("fsdp"))


def test_a_family_that_is_not_trained_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(Qwen2_5VL, "trained", None)
    with pytest.raises(ValueError, match=r"models of qwen2\.5-vl cannot be trained; .* one of llava-video"):
        train(config(folder, QWEN2, output=str(tmp_path / "run")))


def test_a_compressor_of_the_models_own_is_not_set(made):
    with pytest.raises(ValueError, match="compressor must be left out"):
        train(whole_config(made, compressor={"segments": 2}))


def test_missing_peft_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("aviot.backbones.checkpoints.lora.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="need the package peft"):
        train(config(folder, QWEN2, output=str(tmp_path / "run"), stage="joint", lora={}))


def test_records_without_videos_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("aviot.training.run.load_adapted", None)
    (tmp_path / "text.json").write_text(json.dumps([{"messages": [{"role": "user", "content": "Hello"}]}]))
    with pytest.raises(ValueError, match="the record names no video"):
        train(config(folder, QWEN2, output=str(tmp_path / "run"), data={"records": str(tmp_path / "text.json")}))


def test_a_changed_base_is_refused_when_a_run_is_resumed(run, tmp_path):
    chosen, _ = run
    base = shutil.copytree(chosen.model, tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="model sha256 was"):
        train(type(chosen).from_dict(chosen.to_dict() | {"model": str(base)}), resume=True)


def test_the_commands_train_and_answer(folder, tmp_path):
    """From a configuration file, a model folder and videos to an answer of the trained adapter."""
    given = values(folder, "internvl", output=str(tmp_path / "run"), optimization={"steps": 1}, held_out=None)
    save_model("internvl", folder / "internvl")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(given))
    trained = CliRunner().invoke(app, ["train", "--config", str(tmp_path / "config.yaml")])
    assert trained.exit_code == 0, trained.output
    last = tmp_path / "run" / "checkpoint-1"
    assert trained.stdout.strip() == str(last)
    video = str(folder / "set" / "red.mp4")
    words = ["answer", video, "-q", "Which colour is it?", "--model", str(last), "--max-new-tokens", "3", "--json"]
    answered = CliRunner().invoke(app, words)
    assert answered.exit_code == 0, answered.output
    told = json.loads(answered.stdout)
    assert told["tokens_after"] < told["tokens_before"]
    assert told["method"] == "aviot"
    counted = [
        CliRunner().invoke(app, ["account", "--frames", "8", "--json", "--model", str(model)])
        for model in (last, folder / "internvl")
    ]
    assert counted[0].exit_code == 0, counted[0].output
    assert counted[0].stdout == counted[1].stdout
    refused = CliRunner().invoke(app, ["account", "--base", str(folder / "internvl")])
    assert refused.exit_code == 2
    assert "name the adapter with --model" in refused.output.replace("\n", " ")
    refused = CliRunner().invoke(app, [*words, "--base", str(folder / QWEN2)])
    assert refused.exit_code == 2
    assert "was trained for the family internvl" in refused.output.replace("\n", " ")


@pytest.fixture
def moved(run, tmp_path):
    """An adapter whose recorded base is not there any more, the place where it is now, and questions."""
    chosen, last = run
    adapter, base = shutil.copytree(last, tmp_path / "adapter"), shutil.copytree(chosen.model, tmp_path / "elsewhere")
    told = json.loads((adapter / "aviot_adapter.json").read_text())
    told["base"]["path"] = str(tmp_path / "was-here")
    (adapter / "aviot_adapter.json").write_text(json.dumps(told))
    items = [{"video": "red.mp4", "question": "Which colour is it?", "options": ["red", "blue"], "answer": "A"}]
    (tmp_path / "items.json").write_text(json.dumps(items))
    return adapter, base


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_evaluation_names_a_base_that_has_moved(moved, folder, tmp_path):
    adapter, base = moved
    words = ["evaluate", tmp_path / "items.json", "--videos", folder / "set", "--model", adapter, "-r", "1.5"]
    words += ["--max-new-tokens", "2", "--frames", "4"]
    refused = invoke(*words, "-o", tmp_path / "refused")
    assert refused.exit_code == 2
    assert "name the folder of its base model (base)" in refused.output.replace("\n", " ")
    done = invoke(*words, "-o", tmp_path / "run", "--base", base)
    assert done.exit_code == 0, done.output
    again = shutil.move(base, tmp_path / "again")
    missing = invoke("evaluate", "--verify", tmp_path / "run", "--device", "cpu")
    assert missing.exit_code == 2
    assert str(base) in missing.output.replace("\n", "")
    verified = invoke("evaluate", "--verify", tmp_path / "run", "--base", again, "--device", "cpu")
    assert verified.exit_code == 0, verified.output
    shutil.move(again, base)
    assert invoke("evaluate", "--verify", tmp_path / "run", "--device", "cpu").exit_code == 0


@pytest.mark.slow
def test_a_batch_names_a_base_that_has_moved(moved, folder, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    adapter, base = moved
    out = tmp_path / "answers.jsonl"
    words = ["batch", tmp_path / "items.json", "-o", out, "--videos", folder / "set", "--model", adapter, "-r", "1.5"]
    done = invoke(*words, "--base", base, "--max-new-tokens", "2", "--frames", "4", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "answer" in json.loads(out.read_text())


def test_a_benchmark_names_a_base_that_has_moved(moved, tmp_path):
    adapter, base = moved
    words = ["bench", "--model", adapter, "--device", "cpu", "--frames", "4", "-r", "1.5", "--repeats", "1"]
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert "name the folder of its base model (base)" in refused.output.replace("\n", " ")
    done = invoke(*words, "--base", base, "-o", tmp_path / "report.json")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "report.json").read_text())["model"] == str(adapter)
    refused = invoke("bench", "--base", base)
    assert refused.exit_code == 2
    assert "name the adapter with --model" in refused.output.replace("\n", " ")
