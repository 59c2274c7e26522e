"""Rank of this process, from the environment variables of torchrun, srun, mpirun and similar launchers."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

Environment = Mapping[str, str]

SLURM_LOCAL_RANK = "SLURM_LOCALID"

LOCAL_RANKS = (
    "LOCAL_RANK",  # torchrun, accelerate, deepspeed
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # MPICH's and Intel's hydra
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH
    "PALS_LOCAL_RANKID",  # Cray
    "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK",  # jsrun
    "PMI_LOCAL_RANK",
    SLURM_LOCAL_RANK,  # last: under mpirun in a Slurm job, it is the local rank of the job's first process
)
"""Variables with the local rank of a process, in order of precedence."""

LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")
"""Variables with the number of processes on this machine."""

_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True)
class World:
    """Rank of this process among all processes of a run, and its local rank on this machine (None: unknown)."""

    rank: int = 0
    processes: int = 1
    local_rank: int | None = None

    @classmethod
    def here(cls, environment: Environment = os.environ) -> "World":
        """Read RANK and WORLD_SIZE, or else the variables of Slurm or MPI; ValueError if they are inconsistent.

        Slurm's variables are used in an srun step only: in a batch script, SLURM_NTASKS is what srun would start.
        """
        rank_name, size_name = _names(environment)
        rank, processes = _number(environment, rank_name, 0), _number(environment, size_name, 1)
        if size_name == "WORLD_SIZE" and processes > 1 and rank_name not in environment:
            raise ValueError(f"WORLD_SIZE is {processes} and RANK is not set; set both, as torchrun does")
        if not 0 <= rank < processes:
            values = {name: environment.get(name) for name in (rank_name, size_name)}
            raise ValueError(f"{rank_name} must be a number below {size_name}, as torchrun sets them; got {values}")
        return cls(rank, processes, _local_rank(environment, processes))


def _names(environment: Environment) -> tuple[str, str]:
    """Return the names of the variables with the rank and the number of processes."""
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return "RANK", "WORLD_SIZE"
    mpi = next((names for names in _MPI if all(name in environment for name in names)), None)
    if mpi is not None:  # before Slurm: the daemons of mpirun are srun steps
        return mpi
    if _in_step(environment):
        return "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
    return "RANK", "WORLD_SIZE"


def _in_step(environment: Environment) -> bool:
    """Return whether srun started this process; a batch script has most of Slurm's variables too."""
    rank = environment.get("SLURM_PROCID")
    return rank is not None and ("SLURM_STEP_ID" in environment or rank != "0")


def _local_rank(environment: Environment, processes: int) -> int | None:
    """Return the local rank of this process; None if several may share the machine and no variable is set."""
    known = [name for name in LOCAL_RANKS if name in environment]
    if "SLURM_PROCID" in environment and not _in_step(environment):  # of the batch script, not of this process
        known = [name for name in known if name != SLURM_LOCAL_RANK]
    if known:
        found = _number(environment, known[0], 0)
        if found < 0:
            raise ValueError(f"{known[0]} must be a number of at least 0, got {environment[known[0]]!r}")
        return found
    alone = any(environment.get(name) == "1" for name in LOCAL_SIZES)
    return 0 if processes == 1 or alone else None


def _number(environment: Environment, name: str, default: int) -> int:
    try:
        return int(environment.get(name, default))
    except ValueError:
        return -1
