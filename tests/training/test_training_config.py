"""Configuration files: the paper's defaults, rejected values, and the files in configs/."""

import math
import re
import shlex
from pathlib import Path

import pytest
import yaml
from tiny import ROOT, settings
from typer.testing import CliRunner

from aviot.cli import app
from aviot.config import TRAINING_RATIOS
from aviot.data import DataConfig
from aviot.training.config import TrainingConfig
from aviot.training.config_files import read_config, read_parallelism, write_yaml
from aviot.training.identity import IDENTITY_FILE, ResumeError, check_identity
from aviot.training.run import layout_here, training_arguments

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
PARALLELISMS = sorted((ROOT / "configs" / "parallelism").glob("*.yaml"))


def written(tmp_path, values):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_the_defaults_are_the_papers(tmp_path):
    config = TrainingConfig(model="m", output="o", data=DataConfig("train.json"))
    chosen = config.optimization
    assert (chosen.steps, chosen.global_batch, chosen.learning_rate) == (10_903, 128, 1e-5)
    assert (chosen.warmup, chosen.weight_decay) == (0.03, 0.0)
    assert (config.stage, config.precision) == ("joint", "bf16")
    assert config.data.ratios == TRAINING_RATIOS == tuple(2 + i / 2 for i in range(17))
    assert (config.video.fps, config.video.max_frames) == (2.0, 224)


def test_arguments_of_the_trainer(tmp_path):
    config = TrainingConfig.from_dict(settings(tmp_path, optimization={"steps": 10_903, "learning_rate": 1e-5}))
    arguments = training_arguments(config, read_parallelism(None), layout_here(config))
    assert arguments.lr_scheduler_type == "cosine"
    assert arguments.warmup_steps == math.ceil(0.03 * 10_903)
    assert (arguments.learning_rate, arguments.weight_decay, arguments.max_steps) == (1e-5, 0.0, 10_903)
    assert arguments.gradient_accumulation_steps == 4


def test_a_written_config_is_read_back(tmp_path):
    config = TrainingConfig.from_dict(settings(tmp_path, lora={"rank": 4}, cache={"folder": "f"}, seed=7))
    write_yaml(tmp_path / "again.yaml", config.to_dict())
    assert read_config(tmp_path / "again.yaml") == config
    assert config.data.seed == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": 3}, "the configuration has no field 'optimizer'; its fields are model, output"),
        ({"optimization": {"stepz": 3}}, "optimization has no field 'stepz'; its fields are steps"),
        ({"optimization": 3}, "optimization must be a mapping of its settings, got 3"),
        ({"optimization": {"steps": "many"}}, "steps must be a whole number of at least 1, got 'many'"),
        ({"optimization": {"betas": [0.9]}}, "betas must be two numbers"),
        ({"data": None}, "data must be a mapping of its settings, got None"),
        ({"data": {"records": 5}}, "records must be a path, got 5"),
        ({"data": {"records": "x", "seed": 3}}, "data.seed follows from seed"),
        ({"stage": "second"}, "stage must be one of 'joint', 'compressor', got 'second'"),
        ({"precision": "fp16"}, "precision must be one of 'bf16', 'float32', got 'fp16'"),
        ({"lora": {"rank": 0}}, "rank must be a whole number of at least 1, got 0"),
        ({"lora": {"targets": []}}, "targets must name the decoder's linear layers"),
        ({"lora": {}, "stage": "compressor"}, "lora adapts the decoder"),
        ({"loader": {"workers": -1}}, "workers must be a whole number of at least 0, got -1"),
        ({"gradient_checkpointing": 1}, "gradient_checkpointing must be true or false, got 1"),
        ({"output": 3}, "output must be a path, got 3"),
        ({"cache": {"gigabytes": 3}}, "folder"),
    ],
)
def test_wrong_values_are_rejected(tmp_path, changes, message):
    values = settings(tmp_path) | changes
    with pytest.raises(ValueError, match=re.escape(message)):
        read_config(written(tmp_path, values))


def test_missing_settings_and_files_are_rejected(tmp_path):
    values = settings(tmp_path)
    del values["model"]
    with pytest.raises(ValueError, match="model is missing; add model: PATH"):
        read_config(written(tmp_path, values))
    with pytest.raises(ValueError, match=r"none\.yaml cannot be read .* expected a YAML file, see configs/"):
        read_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match="must hold a mapping of settings, got list"):
        read_config(tmp_path / "list.yaml")
    (tmp_path / "twice.yaml").write_text("model: a\nmodel: b")
    with pytest.raises(ValueError, match="a key is there twice"):
        read_config(tmp_path / "twice.yaml")


def test_changes_of_settings(tmp_path):
    path = written(tmp_path, settings(tmp_path))
    changes = ["optimization.steps=7", "optimization.learning_rate=1e-5", "lora.rank=4", "parallelism=null", "seed=3"]
    config = read_config(path, changes)
    assert (config.optimization.steps, config.optimization.learning_rate) == (7, 1e-5)
    assert config.lora.rank == 4
    assert config.data.seed == 3
    for wrong in ("steps", "=3", "a..b=3"):
        with pytest.raises(ValueError, match=re.escape(f"{wrong}: expected KEY=VALUE, such as optimization.steps=20")):
            read_config(path, [wrong])
    with pytest.raises(ValueError, match="seed is 3 in the file and has no settings"):
        read_config(path, ["seed=3", "seed.x=4"])


def test_engine_is_the_old_name_of_parallelism(tmp_path):
    file = str(ROOT / "configs" / "parallelism" / "zero1.yaml")
    path = written(tmp_path, settings(tmp_path) | {"engine": file})
    with pytest.warns(DeprecationWarning, match="the setting engine is called parallelism now"):
        assert read_config(path).parallelism == file
    with pytest.raises(ValueError, match="engine is the former name of parallelism; give parallelism alone"):
        read_config(path, ["parallelism=null"])


def test_a_checkpoint_that_names_its_engine_is_resumed(tmp_path):
    (tmp_path / IDENTITY_FILE).write_text('{"engine": "zero1", "seed": 0}')
    check_identity(tmp_path, {"parallelism": "zero1", "seed": 0})
    with pytest.raises(ResumeError, match="parallelism was 'zero1', is 'fsdp'"):
        check_identity(tmp_path, {"parallelism": "fsdp", "seed": 0})


def test_the_command_names_its_options_in_errors(tmp_path):
    """The library's own messages name no options: its callers may not use the command line."""
    values = settings(tmp_path)
    del values["model"]
    path = written(tmp_path, values)
    for changes, message in (
        ([], f"{path}: model is missing; add model: PATH to the configuration, or pass --set model=PATH"),
        (["steps"], "--set steps: expected KEY=VALUE, such as optimization.steps=20"),
        (["seed=3", "seed.x=4"], "--set seed.x=4: seed is 3 in the file and has no settings of its own"),
        (["seed={"], "--set seed={ is not YAML of plain values: "),
    ):
        words = [word for change in changes for word in ("--set", change)]
        failed = CliRunner().invoke(app, ["train", "--config", str(path), *words])
        assert failed.exit_code == 2
        assert f"aviot: {message}" in failed.stderr


def command_of(path: Path) -> list[str]:
    """Return the arguments of `aviot` in the command on the first line of a file."""
    words = shlex.split(path.read_text().splitlines()[0].removeprefix("# "))
    return words[words.index("aviot") + 1 :]


@pytest.mark.parametrize("path", CONFIGS + PARALLELISMS, ids=lambda path: path.stem)
def test_every_file_starts_with_the_command_that_uses_it(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = command_of(path)
    assert words[:2] == ["train", "--config"]
    changes = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    config = read_config(words[2], changes)
    assert str(path.relative_to(ROOT)) in (words[2], config.parallelism)
    assert read_parallelism(config.parallelism).name in ("replicas", "fsdp", "zero1", "zero2", "zero3")


@pytest.mark.parametrize("path", PARALLELISMS, ids=lambda path: path.stem)
def test_every_parallelism_is_accepted_by_its_library(path, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    parallelism = read_parallelism(str(path))
    if parallelism.kind == "deepspeed":
        from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

        zero = DeepSpeedZeroConfig(**parallelism.settings["zero_optimization"])
        assert f"zero{int(zero.stage)}" == parallelism.name == path.stem
    else:
        config = TrainingConfig.from_dict(settings(tmp_path))
        plugin = training_arguments(config, parallelism, layout_here(config)).fsdp_plugin_args
        assert plugin["fsdp_version"] == 2
        assert plugin["transformer_cls_names_to_wrap"] == "Qwen2DecoderLayer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nfsdp: {}", "must hold one key, fsdp or deepspeed, got a, fsdp"),
        ("{}", "must hold one key, fsdp or deepspeed, got none"),
        ("fsdp: 3", "fsdp must be a mapping of its settings, got 3"),
        ("deepspeed: {}", "stage must be 1, 2 or 3"),
        ("deepspeed: {zero_optimization: ''}", "stage must be 1, 2 or 3"),
        ("deepspeed: {zero_optimization: null}", "stage must be 1, 2 or 3"),
    ],
)
def test_wrong_parallelisms_are_rejected(tmp_path, text, message):
    (tmp_path / "parallelism.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_parallelism(str(tmp_path / "parallelism.yaml"))


def test_aliases_that_unfold_without_end_are_refused(tmp_path):
    """Before a sentence repeats the value."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*lines, "model: *a9", "output: o", "data: {records: *a9}"]))
    with pytest.raises(ValueError, match="expands to more than 100,000 values"):
        read_config(path)
    path.write_text("model: &m {x: *m}\noutput: o\ndata: {records: r}")
    with pytest.raises(ValueError, match="expands to more than 100,000 values"):
        read_config(path)
