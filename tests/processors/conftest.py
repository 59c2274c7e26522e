"""Comparisons with the families' own processors, which need torchvision; `make processors` runs them.

PyPI's torchvision has operators built for CUDA and cannot be imported beside a CPU's torch unless they are declared.
"""

import importlib.util
import re
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("families", "video")]


def _declare_operators() -> None:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        raise RuntimeError("these tests need torchvision; run them by `make processors`")
    text = Path(found.origin).with_name("_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in set(re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"', text)):
        library.define(f"{name}(Tensor x) -> Tensor")
    globals()["_kept"] = library  # operators live as long as their library


_declare_operators()
