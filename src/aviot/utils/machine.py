"""The machine and the code that a command runs on: device, versions, commit."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from aviot.utils.launcher import World

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


def process_device(
    name: str | None, environment: Mapping[str, str] = os.environ, gpus: int | None = None
) -> "torch.device":
    """Return the device of this process: the one named, or for `auto`, `cuda` and None a GPU of its own.

    `gpus` is the number of GPUs that this process sees; default: what torch counts.
    """
    import torch

    gpus = torch.cuda.device_count() if gpus is None else gpus
    if name not in (None, "auto", "cuda") or gpus == 0:
        return device_named(name or "auto")
    return torch.device("cuda", own_gpu(World.here(environment), gpus))


def own_gpu(world: World, gpus: int) -> int:
    """Return the number of this process's GPU among those it sees; ValueError where that cannot be known.

    A launcher that gives every process one visible GPU leaves nothing to choose.
    """
    if gpus == 1:
        return 0
    if world.local_rank is None:
        raise ValueError(
            f"this is process {world.rank} of {world.processes} and sees {gpus} GPUs, but nothing tells its number on "
            "this machine, so that all processes would take GPU 0; set LOCAL_RANK (torchrun, srun and mpirun tell it), "
            "show each process one GPU by CUDA_VISIBLE_DEVICES, or name its device"
        )
    return world.local_rank % gpus


def join_launcher(environment: dict[str, str] | os._Environ[str] = os.environ, gpus: int | None = None) -> World:
    """Set RANK, WORLD_SIZE and LOCAL_RANK where something else than torchrun started several processes.

    Accelerate reads these alone: without LOCAL_RANK each process would train by itself, on GPU 0.
    """
    world = World.here(environment)
    if world.processes > 1:
        if gpus is None:
            import torch

            gpus = torch.cuda.device_count()
        local = own_gpu(world, max(gpus, 1))
        for name, value in (("RANK", world.rank), ("WORLD_SIZE", world.processes), ("LOCAL_RANK", local)):
            environment.setdefault(name, str(value))
    return world


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
