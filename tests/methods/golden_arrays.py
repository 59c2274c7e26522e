"""Inputs and outputs of published methods' own code, one file per case; tests/golden/README.md."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

FOLDER = Path(os.environ.get("AVIOT_METHOD_GOLDEN") or Path(__file__).parents[1] / "golden" / "methods")


@dataclass(frozen=True)
class Case:
    """One case: the method's own parameters, other facts of its header, and its tensors."""

    name: str
    params: dict[str, Any]
    header: dict[str, Any]
    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


def names(method: str) -> list[str]:
    """Return the names of a method's cases, for parametrising tests."""
    found = sorted(path.stem for path in (FOLDER / method).glob("*.safetensors"))
    assert found, f"no golden arrays of {method} in {FOLDER}"
    return found


def load(method: str, name: str) -> Case:
    """Read one case."""
    with safe_open(FOLDER / method / f"{name}.safetensors", "pt") as file:
        header = json.loads(file.metadata()["case"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # a safe_open is no mapping
    return Case(name, header["params"], header, tensors)
