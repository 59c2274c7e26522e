"""Configurations: a checkpoint's JSON files around sound weights, and the YAML files of a training run."""

import json
from pathlib import Path
from random import Random
from typing import Any

from fuzz import loading
from fuzz.mutate import mutate_bytes, mutate_json, nasty_value
from fuzz.target import Target, plain_errors, require

CONFIGS = Path(__file__).parents[2] / "configs"
MODEL_FILES = (
    *("config.json", "config.json", "config.json", "generation_config.json", "generation_config.json"),
    *("processor_config.json", "tokenizer_config.json", "special_tokens_map.json", "vision_tower/config.json"),
)
NAMES = (
    *("auto_map", "attn_implementation", "_attn_implementation", "quantization_config", "torch_dtype", "dtype"),
    *(
        "num_hidden_layers",
        "image_size",
        "patch_size",
        "hidden_size",
        "vocab_size",
        "num_attention_heads",
        "rope_scaling",
    ),
    *("num_key_value_heads", "layer_types", "sliding_window", "max_position_embeddings", "ratio", "pool_stride"),
    *("compressor_config", "text_config", "vision_config", "model_type", "num_beams", "max_new_tokens", "max_length"),
    *("num_return_sequences", "eos_token_id", "pad_token_id", "bad_words_ids", "do_sample", "temperature", "top_k"),
    *(
        "penalty_alpha",
        "assistant_model",
        "cache_implementation",
        "compile_config",
        "watermarking_config",
        "stop_strings",
    ),
    *("tokenizer_class", "chat_template", "extra_special_tokens", "added_tokens_decoder", "model_max_length", "fps"),
    *("max_frames", "processor_class", "aviot_sinkhorn_iterations", "aviot_temporal_segments", "aviot_cost_dim"),
    *("aviot_multiscale_refinement_rounds", "aviot_progressive_ratios", "aviot_thw_num_bands", "is_encoder_decoder"),
)
"""Keys that loaders look for; a mutation may add or rename one."""

TRAINING_NAMES = (
    "lora",
    "cache",
    "held_out",
    "parallelism",
    "seed",
    "stage",
    "precision",
    "loader",
    "saving",
    "logging",
    "<<",
)
BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
"""Nine lines that unfold to a list of 3,486,784,401."""

YAML = (
    f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{BOMB}model: *a9\noutput: *a9\ndata: {{records: *a9, ratios: *a9}}\n",
    "model: &m {x: *m}\noutput: y\ndata: {records: r}\n",
    "data: &d {records: r, ratios: *d}\nmodel: m\noutput: o\n",
    "model: !!python/object/apply:os.system ['true']\n",
    "model: !!binary aGFsbG8=\noutput: 2020-01-01\ndata: !!set {a, b}\n",
    "? [a, b]\n: c\nmodel: m\n",
    "{a: b}: c\n",
    "<<: [{model: m}, {output: o}]\ndata: {records: r}\n",
    "model: m\noutput: o\ndata: {records: r}\noptimization: {steps: 1_000, learning_rate: 0x10, warmup: 1:30:00}\n",
    "model: m\n--- \noutput: o\n",
    "model: |\n  a\n  \x1b[31m\noutput: o\ndata: {records: r}\n",
    "%YAML 9.9\n---\nmodel: m\n",
    "- model: m\n",
    "[" * 5000,
    "a: " * 3000,
    "1: 2\n1.0: 3\ntrue: 4\n",
)
"""What YAML can say and JSON cannot."""


def prepare(sources: Path) -> None:
    """Write the checkpoints, and the repository's YAML files as JSON values."""
    import yaml

    loading.prepare(sources)
    for kind, folder in (("training", CONFIGS), ("parallelism", CONFIGS / "parallelism")):
        values = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
        (sources / f"{kind}.json").write_text(json.dumps(values))


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Mutate one of a checkpoint's JSON files, a training configuration or a parallelism file."""
    kind = rng.choice(("checkpoint", "checkpoint", "checkpoint", "training", "parallelism"))
    if kind != "checkpoint":
        return _write_yaml(rng, sources, folder, kind)
    layout = rng.choice(loading.LAYOUTS)
    checkpoint = loading.copy_layout(sources, folder, layout)
    name = rng.choice(MODEL_FILES)
    path = checkpoint / name
    value = json.loads(path.read_text()) if path.is_file() else {}
    data, what = mutate_json(rng, value, NAMES)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return f"{layout}, {name}: {what}"


def _write_yaml(rng: Random, sources: Path, folder: Path, kind: str) -> str:
    values = rng.choice(json.loads((sources / f"{kind}.json").read_text()))
    if rng.random() < 0.25:
        text = rng.choice(YAML)
        data, what = text.encode(), f"{text[:40]!r}"
    else:
        data, what = mutate_json(rng, values, TRAINING_NAMES)
    if rng.random() < 0.1:
        data, more = mutate_bytes(rng, data or b" ")
        what += f"; {more}"
    (folder / f"{kind}.yaml").write_bytes(data)
    changes = [_change(rng, values) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    (folder / "changes.json").write_text(json.dumps(changes))
    return f"{kind}, {changes!r:.100}: {what}"


def _change(rng: Random, values: dict[str, Any]) -> str:
    """Return a change as the command line takes it, KEY=VALUE, or nearly."""
    group = rng.choice(sorted(values))
    inner = values[group]
    key = f"{group}.{rng.choice(sorted(inner))}" if isinstance(inner, dict) and inner else group
    return rng.choice((f"{key}={nasty_value(rng)}"[:2000], f"{key}.x=1", f"{key}", f"{key}=&a [*a]", "=1", f"{key}={{"))


def check(folder: Path) -> str:
    """Read what the case wrote, as the commands read it."""
    if (folder / "checkpoint").is_dir():
        return loading.check_checkpoint(folder / "checkpoint", ("aviot",))
    with plain_errors():
        return _check_parallelism(folder) if (folder / "parallelism.yaml").is_file() else _check_training(folder)


def _check_parallelism(folder: Path) -> str:
    from aviot.training.config_files import read_parallelism

    parallelism = read_parallelism(str(folder / "parallelism.yaml"))
    require(bool(parallelism.name) and isinstance(parallelism.arguments(), dict), f"it is {parallelism!r:.200}")
    return "parallelism"


def _check_training(folder: Path) -> str:
    from aviot.training.config import TrainingConfig
    from aviot.training.config_files import read_config

    config = read_config(folder / "training.yaml", json.loads((folder / "changes.json").read_text()))
    require(TrainingConfig.from_dict(config.to_dict()) == config, "the configuration does not survive being written")
    return "training"


TARGET = Target(
    name="configs",
    prepare=prepare,
    control=loading.control,
    write=write,
    check=check,
    errors=loading.errors,
    modules=(*loading.MODULES, "aviot.training.config_files", "yaml"),
)
