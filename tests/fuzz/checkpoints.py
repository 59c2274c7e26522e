"""Checkpoints: weights, indexes and tokenizers mutated, and files that do not belong in a folder, or are none."""

import json
import os
import struct
from pathlib import Path
from random import Random
from typing import Any

from fuzz import loading
from fuzz.mutate import NUMBERS, TEXTS, Change, change_folder, mutate_bytes, mutate_json, nasty_value
from fuzz.target import Target

WEIGHTS = "*.safetensors"
INDEX = "model.safetensors.index.json"
TYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I8", "U8", "BOOL", "U16", "C64", "F4", "X")
WORDS = (float("nan"), float("inf"), -float("inf"), 3.4e38, -3.4e38, 1e30, 1e-42, 0.0)
"""Values of float32 weights that a sound checkpoint does not hold, or not everywhere."""

CODE = "open('ran', 'w').close()\nclass Tokenizer:\n    pass\n"
LINKS = ("/dev/zero", "/dev/full", "config.json", "nowhere", ".", "..", "/etc/hostname", "/proc/self/mem")

MOST_BYTES = 2**25

Tensors = dict[str, Any]


def read_weights(path: Path) -> tuple[Tensors, bytes]:
    """Return the header of a safetensors file, and its body."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_weights(path: Path, header: bytes, body: bytes) -> None:
    """Write a safetensors file whose header may be anything."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Change one thing about a checkpoint's folder, or two."""
    layout = rng.choice(loading.LAYOUTS)
    checkpoint = loading.copy_layout(sources, folder, layout)
    return f"{layout}: {change_folder(rng, CHANGES, checkpoint)[1]}"


def _files(checkpoint: Path, pattern: str = "*") -> list[Path]:
    """Return the files of a folder that can be read as a whole."""
    found = sorted(checkpoint.rglob(pattern))
    return [path for path in found if path.is_file() and path.stat().st_size <= MOST_BYTES]


def _weights(rng: Random, checkpoint: Path) -> Path:
    return rng.choice(_files(checkpoint, WEIGHTS))


def _header_as_json(rng: Random, checkpoint: Path) -> str:
    path = _weights(rng, checkpoint)
    header, body = read_weights(path)
    names = rng.sample(sorted(header), min(6, len(header)))
    mutated, what = mutate_json(rng, {name: header[name] for name in names}, ("__metadata__", "dtype", "shape"))
    rest = json.dumps({name: value for name, value in header.items() if name not in names})
    joined = rest[:-1].encode() + b"," + mutated[1:] if mutated.startswith(b"{") and len(rest) > 2 else mutated
    write_weights(path, joined, body)
    return what


def _header_field(rng: Random, checkpoint: Path) -> str:
    """Change type, shape or place of one tensor, or its name."""
    path = _weights(rng, checkpoint)
    header, body = read_weights(path)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    field = rng.choice(("dtype", "shape", "data_offsets", "name", "copy", "metadata"))
    entry = header[name]
    if field == "dtype":
        entry["dtype"] = rng.choice(TYPES)
    elif field == "shape":
        shape = entry["shape"]
        entry["shape"] = rng.choice((shape[::-1], [1, *shape], [*shape, 0], [rng.choice(NUMBERS)], [], shape * 40))
    elif field == "data_offsets":
        entry["data_offsets"] = [rng.choice((0, 1, -1, 2**40, 2**63, len(body), *entry["data_offsets"])) for _ in "ab"]
    elif field == "name":
        header[rng.choice(TEXTS)] = header.pop(name)
    elif field == "copy":
        header[f"{name}{rng.choice(TEXTS)}"] = dict(entry)
    else:
        header["__metadata__"] = nasty_value(rng)
    write_weights(path, json.dumps(header).encode(), body)
    return f"{name}, {field}"


def _header_length(rng: Random, checkpoint: Path) -> str:
    path = _weights(rng, checkpoint)
    value = rng.choice((0, 1, 7, 2**16, 10**8, 10**8 + 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1))
    path.write_bytes(struct.pack("<Q", value) + path.read_bytes()[8:])
    return str(value)


def _body(rng: Random, checkpoint: Path) -> str:
    """Overwrite weights by values that are not finite, or by huge ones."""
    path = _weights(rng, checkpoint)
    header, body = read_weights(path)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    start, end = header[name]["data_offsets"]
    value, changed = rng.choice(WORDS), bytearray(body)
    count = rng.choice((1, 1, (end - start) // 4)) if end - start >= 4 else 0
    for _ in range(min(count, 64)):
        place = start + 4 * rng.randrange((end - start) // 4)
        changed[place : place + 4] = struct.pack("<f", value)
    if count > 64:
        changed[start:end] = struct.pack("<f", value) * ((end - start) // 4)
    write_weights(path, json.dumps(header).encode(), bytes(changed))
    return f"{name} has {count} times {value}"


def _bytes(rng: Random, checkpoint: Path) -> str:
    path = rng.choice(_files(checkpoint))
    data, what = mutate_bytes(rng, path.read_bytes())
    path.write_bytes(data)
    return f"{path.name}: {what}"


def _index(rng: Random, checkpoint: Path) -> str:
    path = checkpoint / INDEX
    value = json.loads(path.read_text()) if path.is_file() else {"weight_map": {"a": "model.safetensors"}}
    listed = value["weight_map"]
    if rng.random() < 0.5:
        name = rng.choice(sorted(listed))
        strange = ("../secret.safetensors", "/dev/zero", "config.json", "tokenizer.json", "", ".", INDEX)
        listed[name] = rng.choice((*strange, nasty_value(rng)))
        path.write_text(json.dumps(value))
        return f"{name} in {listed[name]!r:.60}"
    data, what = mutate_json(rng, value, ("weight_map", "metadata"))
    path.write_bytes(data)
    return what


def _tokenizer(rng: Random, checkpoint: Path) -> str:
    path = checkpoint / "tokenizer.json"
    value = json.loads(path.read_text())
    part = rng.choice(sorted(value))
    data, what = mutate_json(rng, {part: value[part]}, ("type", "added_tokens", "vocab", "merges", "truncation"))
    try:
        inner = json.loads(data)
    except (ValueError, RecursionError):
        path.write_bytes(data)
        return what
    path.write_text(json.dumps(value | inner if isinstance(inner, dict) else inner))
    return what


def _special(rng: Random, checkpoint: Path) -> str:
    """Put a pipe, a folder, a link, nothing, a file full of zeros, or one without end in the place of a file."""
    path = rng.choice(_files(checkpoint))
    path.unlink()
    kind = rng.choice(("pipe", "folder", "link", "nothing", "empty", "sparse", "loop"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("link", "loop"):
        path.symlink_to(path.name if kind == "loop" else rng.choice(LINKS))
    elif kind != "nothing":
        path.touch()
        os.truncate(path, rng.choice((2**20, 2**33)) if kind == "sparse" else 0)
    return f"{path.name} is {kind}"


def _extra(rng: Random, checkpoint: Path) -> str:
    """Add a file that some loader may look for."""
    name = rng.choice(sorted(EXTRAS))
    path = checkpoint / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(EXTRAS[name].encode())
    return name


def _remote_code(rng: Random, checkpoint: Path) -> str:
    """Name code of the folder's own in a configuration, as models that need trust_remote_code do."""
    (checkpoint / "tokenizer.py").write_text(CODE)
    file, key = rng.choice(
        (
            ("tokenizer_config.json", "AutoTokenizer"),
            ("config.json", "AutoConfig"),
            ("config.json", "AutoModel"),
            ("config.json", "AutoTokenizer"),
            ("processor_config.json", "AutoProcessor"),
        )
    )
    path = checkpoint / file
    value = json.loads(path.read_text()) if path.is_file() else {}
    classes: Any = ["tokenizer.Tokenizer", "tokenizer.Tokenizer"] if key == "AutoTokenizer" else "tokenizer.Tokenizer"
    value["auto_map"] = {key: classes}
    if rng.random() < 0.5:
        value["tokenizer_class"] = "Tokenizer"
    path.write_text(json.dumps(value))
    return f"{file}, {key}"


ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": ".", "r": 2, "target_modules": ["q_proj"], "task_type": None}
EXTRAS = {
    "adapter_config.json": json.dumps(ADAPTER),
    "pytorch_model.bin": "cos\nsystem\n(S'true'\ntR.",
    "model.safetensors.index.json": '{"weight_map": {"a": "pytorch_model.bin"}}',
    "model-00002-of-00003.safetensors": "",
    "chat_template.jinja": "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for i in range(10**9) %}x{% endfor %}",
    "added_tokens.json": '{"<x>": 99999999}',
    "vocab.json": '{"a": 0}',
    "merges.txt": "a b\n" * 10,
    "tokenizer.model": "\0" * 100,
    "preprocessor_config.json": '{"image_processor_type": "X", "auto_map": {"AutoImageProcessor": "x.X"}}',
    "generation_config.json": '{"num_beams": 5000, "max_new_tokens": 1000000000}',
    "custom_generate/generate.py": CODE,
    "vision_tower/config.json": '{"vision_config": {"image_size": 100000, "num_hidden_layers": 10000000}}',
}
CHANGES: dict[str, Change] = {
    "header": _header_as_json,
    "field": _header_field,
    "length": _header_length,
    "body": _body,
    "bytes": _bytes,
    "index": _index,
    "tokenizer": _tokenizer,
    "special": _special,
    "extra": _extra,
    "code": _remote_code,
}


def check(folder: Path) -> str:
    """Load the checkpoint and ask it."""
    return loading.check_checkpoint(folder / "checkpoint")


TARGET = Target(
    name="checkpoints",
    prepare=loading.prepare,
    control=loading.control,
    write=write,
    check=check,
    errors=loading.errors,
    modules=loading.MODULES,
)
