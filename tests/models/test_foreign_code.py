"""Checkpoints with code, kernels, adapters or other weights are refused by name, and none of it is run."""

import io
import os
import sys

import numpy as np
import pytest
from hostile import golden, load, put, small
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from aviot.backbones.checkpoints.shards import CheckpointError
from aviot.backbones.llava_video.auxiliary_files import load_tokenizer
from aviot.backbones.llava_video.checkpoint import read_checkpoint_folder
from aviot.backbones.llava_video.conversion import convert_checkpoint
from aviot.cli import app
from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor

PAYLOAD = """
from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import PreTrainedTokenizerFast as Loaded
"""
MAPS = {
    "tokenizer_config.json": {"AutoTokenizer": ["payload.Loaded", "payload.Loaded"]},
    "config.json": {"AutoConfig": "payload.Loaded", "AutoModel": "payload.Loaded", "AutoTokenizer": ["payload.Loaded"]},
    "processor_config.json": {"AutoProcessor": "payload.Loaded"},
    "generation_config.json": {"AutoModel": "payload.Loaded"},
    "preprocessor_config.json": {"AutoImageProcessor": "payload.Loaded"},
}


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """Return a file that only code of the checkpoint would write; prompts on stdin are answered with yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 50))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "marker"


def bring_code(folder, marker, name):
    (folder / "payload.py").write_text(PAYLOAD.format(marker=str(marker)))
    put(folder / name, MAPS[name], "auto_map")
    if name == "tokenizer_config.json":
        put(folder / name, "Loaded", "tokenizer_class")


@pytest.mark.parametrize("made", [golden, small])
@pytest.mark.parametrize("name", MAPS)
def test_an_auto_map_is_refused_by_name_and_not_run(tmp_path, marker, made, name):
    folder = made(tmp_path)
    bring_code(folder, marker, name)
    for loads in (AviotProcessor.from_pretrained, AviotForConditionalGeneration.from_pretrained):
        with pytest.raises(CheckpointError, match=rf"{name}: auto_map names code to run, which is never run here"):
            loads(folder)
    with pytest.raises(CheckpointError, match="auto_map"):
        list(convert_checkpoint(folder, tmp_path / "target"))
    assert not marker.exists()


def test_the_tokenizers_loader_itself_never_runs_code(tmp_path, marker):
    folder = small(tmp_path)
    config = read_checkpoint_folder(folder).config
    bring_code(folder, marker, "tokenizer_config.json")
    put(folder / "tokenizer_config.json", None, "tokenizer_class")
    with pytest.raises(CheckpointError, match="tokenizer"):
        load_tokenizer(folder, config, {})
    assert not marker.exists()


def test_the_command_line_does_not_run_code_for_a_yes(tmp_path, marker):
    folder, frames = small(tmp_path), tmp_path / "frames"
    bring_code(folder, marker, "tokenizer_config.json")
    frames.mkdir()
    for number in range(3):
        Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(frames / f"{number}.png")
    command = ["answer", str(frames), "-q", "What?", "--model", str(folder)]
    done = CliRunner().invoke(app, command, input="y\n" * 50)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "auto_map names code to run" in done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("load_one", [AviotProcessor, AviotForConditionalGeneration, AviotConfig])
def test_a_caller_cannot_ask_for_it_either(tmp_path, load_one):
    with pytest.raises(ValueError, match="trust_remote_code must be left out or False"):
        load_one.from_pretrained(small(tmp_path), trust_remote_code=True)
    assert load_one.from_pretrained(tmp_path / "ours", trust_remote_code=False) is not None


def test_a_custom_generate_folder_is_refused(tmp_path, marker):
    folder = small(tmp_path)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(PAYLOAD.format(marker=str(marker)))
    with pytest.raises(CheckpointError, match="holds custom_generate, code to run"):
        load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("keys", [(), ("text_config",), ("vision_config",)])
@pytest.mark.parametrize(
    ("key", "kernel"),
    [
        ("attn_implementation", "kernels-community/flash-attn"),
        ("_attn_implementation", "org/name@main:layer"),
        ("attn_implementation", "paged|org/name"),
        ("attn_implementation", {"": "sdpa", "text_config": "org/name"}),
        ("experts_implementation", "org/name"),
        ("_attn_implementation_internal", 7),
    ],
)
def test_a_hub_kernel_is_refused_by_name(tmp_path, keys, key, kernel):
    folder = small(tmp_path)
    put(folder / "config.json", kernel, *keys, key)
    with pytest.raises(
        CheckpointError, match=rf"config.json: {'.'.join([*keys, key])} is .* can fetch and run compiled"
    ):
        load(folder)
    with pytest.raises(CheckpointError, match=key):
        AviotConfig.from_pretrained(folder)


@pytest.mark.parametrize("word", ["eager", "sdpa", "flash_attention_2", None])
def test_built_in_attention_may_be_named_and_the_caller_decides(tmp_path, word):
    folder = small(tmp_path)
    for keys in ((), ("text_config",)):
        put(folder / "config.json", word, *keys, "_attn_implementation")
    put(folder / "generation_config.json", word, "attn_implementation")
    assert AviotForConditionalGeneration.from_pretrained(folder).config._attn_implementation == "sdpa"
    chosen = AviotForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    assert chosen.config.text_config._attn_implementation == "eager"


def test_an_adapter_beside_the_weights_is_refused_by_name(tmp_path):
    folder = small(tmp_path)
    put(folder / "adapter_config.json", "LORA", "peft_type")
    with pytest.raises(CheckpointError, match=r"holds adapter_config.json, an adapter .*; merge it into the weights"):
        load(folder)
    (folder / "adapter_config.json").unlink()
    (folder / "adapter_config.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
        ("transformers_weights", "other.safetensors"),
        ("kernel_config", {"RMSNorm": "org/name:layer"}),
        ("use_kernels", True),
        ("fusion_config", {"a": 1}),
        ("custom_pipelines", {"a": {"impl": "payload.Loaded"}}),
        ("trust_remote_code", True),
    ],
)
@pytest.mark.parametrize("made", [golden, small])
def test_other_weights_and_features_are_refused_by_name(tmp_path, made, key, value):
    folder = made(tmp_path)
    put(folder / "config.json", value, key)
    with pytest.raises(CheckpointError, match=f"config.json: {key} "):
        load(folder)


def test_what_is_checked_is_what_is_loaded(tmp_path):
    folder = small(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder / "other.safetensors")
    put(folder / "model.safetensors.index.json", dict.fromkeys(tensors, "other.safetensors"), "weight_map")
    with pytest.raises(CheckpointError, match=r"holds both model.safetensors and model.safetensors.index.json"):
        load(folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "other.safetensors").rename(folder / "shard-00001-model-00001-of-00001.safetensors")
    with pytest.raises(CheckpointError, match="a part of a distributed checkpoint"):
        load(folder)


@pytest.mark.parametrize("name", ["chat_template.jinja", "generation_config.json", "tokenizer.json", "config.json"])
def test_a_link_cannot_bring_another_file_into_a_checkpoint(tmp_path, name):
    folder = small(tmp_path)
    secret = tmp_path / "secret"
    if (folder / name).exists():
        (folder / name).rename(secret)
    else:
        secret.write_text("password")
    (folder / name).symlink_to(secret)
    with pytest.raises(CheckpointError, match=rf"{name} is a link that leads out of the checkpoint's folder"):
        list(convert_checkpoint(folder, tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_further_chat_templates_are_bounded_and_lead_nowhere_else(tmp_path):
    folder = small(tmp_path)
    templates = folder / "additional_chat_templates"
    templates.mkdir()
    (templates / "one.jinja").write_text("{{ messages }}")
    load(folder)
    with (templates / "two.jinja").open("wb") as file:
        file.truncate(2**20)
    with pytest.raises(CheckpointError, match="additional_chat_templates holds more than the 1,048,576 bytes"):
        load(folder)
    (templates / "two.jinja").unlink()
    (tmp_path / "secret").write_text("password")
    (templates / "two.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match=r"two.jinja is a link that leads out of the checkpoint's folder"):
        load(folder)
    templates.rename(tmp_path / "elsewhere")
    templates.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="additional_chat_templates is a link"):
        load(folder)


def test_the_hubs_cache_is_made_of_links(tmp_path):
    folder = small(tmp_path)
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1f", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    folder.rename(blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(os.path.relpath(path, snapshot))
    load(snapshot)


def test_a_pipe_is_not_waited_for(tmp_path):
    folder = small(tmp_path)
    for name in ("config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json"):
        kept = (folder / name).rename(tmp_path / "kept")
        os.mkfifo(folder / name)
        with pytest.raises(CheckpointError, match=rf"{name}: not a regular file"):
            load(folder)
        (folder / name).unlink()
        kept.rename(folder / name)
