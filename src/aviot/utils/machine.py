"""Device of this process, and the description of machine and code for reports: versions, commit, command."""

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
    """Return a description of the device and its host."""
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
    """Raise ValueError unless a device name is valid; its presence is not checked, since that needs torch."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", name):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")


def device_named(name: str) -> "torch.device":
    """Return the device of a name; ValueError if it is not available."""
    check_device_name(name)
    import torch

    resolved = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    chosen = torch.device(resolved)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"no GPU can be used here as {resolved}; choose auto or cpu")
    return chosen


def process_device(
    name: str | None, environment: Mapping[str, str] = os.environ, gpus: int | None = None
) -> "torch.device":
    """Return the device of this process: the named one, or a GPU of its own for `auto`, `cuda` and None.

    `gpus` is the number of GPUs that this process sees; default: what torch counts.
    """
    import torch

    gpus = torch.cuda.device_count() if gpus is None else gpus
    if name not in (None, "auto", "cuda") or gpus == 0:
        return device_named(name or "auto")
    return torch.device("cuda", own_gpu(World.here(environment), gpus))


def own_gpu(world: World, gpus: int) -> int:
    """Return the index of this process's GPU among those it sees; ValueError if it cannot be determined.

    A launcher that gives every process one visible GPU leaves nothing to choose.
    """
    if gpus == 1:
        return 0
    if world.local_rank is None:
        raise ValueError(
            f"this is process {world.rank} of {world.processes} and sees {gpus} GPUs, but its local rank is not "
            "known, so that all processes would take GPU 0; set LOCAL_RANK (torchrun, srun and mpirun set one), "
            "give each process one GPU with CUDA_VISIBLE_DEVICES, or name its device"
        )
    return world.local_rank % gpus


def join_launcher(environment: dict[str, str] | os._Environ[str] = os.environ, gpus: int | None = None) -> World:
    """Set RANK, WORLD_SIZE and LOCAL_RANK if a launcher other than torchrun started several processes.

    Accelerate reads only these: without LOCAL_RANK each process would train by itself, on GPU 0.
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
    """Return the versions of all installed packages that could change a result."""
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
    """Return the commit of the checkout that this package runs from; None outside a checkout.

    With uncommitted changes, `+` and a hash of the changes follow.
    """
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # no checkout, no git, or somebody else's repository around an installed package
    head, changed = _git("rev-parse", "HEAD"), _git("diff", "HEAD", "--full-index")
    return None if head is None else head + (f"+{sha256(changed.encode()).hexdigest()[:8]}" if changed else "")


def command_line() -> str:
    """Return the command as it was typed, without the folder of the program."""
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
