"""The machine and the code that a command runs on: device, versions, commit."""

import os
import platform
import re
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PACKAGES = ("aviot", "torch", "transformers", "triton", "av", "numpy", "lmms-eval")
GIT_SECONDS = 10


def machine(device: "torch.device") -> dict[str, object]:
    """Describe the device, and the host that feeds it."""
    import torch

    host: dict[str, object] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if device.type != "cuda":
        return {"device": "cpu"} | host
    properties = torch.cuda.get_device_properties(device)
    memory = round(properties.total_memory / 2**30, 1)
    return {"device": properties.name, "memory_gib": memory} | host


def check_device_name(name: str) -> None:
    """Refuse what names no kind of device; whether the device is there takes torch to know."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", name):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")


def device_named(name: str) -> "torch.device":
    """Return the device that was asked for, if it is there."""
    check_device_name(name)
    import torch

    place = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    chosen = torch.device(place)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"no GPU can be used here as {place}; leave --device out or say --device cpu")
    return chosen


def own_gpu() -> "torch.device":
    """The GPU of this process: under torchrun and accelerate each process of a machine has one of its own."""
    import torch

    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def versions() -> dict[str, str]:
    """Of everything that could change a figure, as far as it is installed."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    return found


def commit() -> str | None:
    """The commit of the checkout this package runs from; None elsewhere.

    Where files were changed, `+` and a number that follows from what they are.
    """
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # no checkout, no git, or somebody else's repository around an installed package
    head, changed = _git("rev-parse", "HEAD"), _git("diff", "HEAD", "--full-index")
    return None if head is None else head + (f"+{sha256(changed.encode()).hexdigest()[:8]}" if changed else "")


def command_line() -> str:
    """The command as it was typed, without the folder it lies in."""
    program = Path(sys.argv[0]).name
    return shlex.join(["aviot" if program in ("-c", "__main__.py") else program, *sys.argv[1:]])


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
