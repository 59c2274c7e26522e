"""Which process of how many this is, by the environment variables of torchrun, srun, mpirun and their like."""

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
    SLURM_LOCAL_RANK,  # last: mpirun inside a Slurm job sets its own, and Slurm's is that of the job's first process
)
"""Variables with a process's number on its machine, in the order of precedence."""

LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")
"""Variables with the number of processes on this machine."""

_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True)
class World:
    """This process's rank among all processes of a run, and its number on this machine (None: not known)."""

    rank: int = 0
    processes: int = 1
    local_rank: int | None = None

    @classmethod
    def here(cls, environment: Environment = os.environ) -> "World":
        """Read RANK and WORLD_SIZE, or else what Slurm or MPI set; ValueError where they make no sense.

        Slurm's variables count in a step of srun only: in a batch script, SLURM_NTASKS is what srun would start.
        """
        rank_name, size_name = _names(environment)
        rank, processes = _number(environment, rank_name, 0), _number(environment, size_name, 1)
        if size_name == "WORLD_SIZE" and processes > 1 and rank_name not in environment:
            raise ValueError(f"WORLD_SIZE is {processes} and RANK is not set; set both, as torchrun does")
        if not 0 <= rank < processes:
            told = {name: environment.get(name) for name in (rank_name, size_name)}
            raise ValueError(f"{rank_name} must be a number below {size_name}, as torchrun sets them; got {told}")
        return cls(rank, processes, _local_rank(environment, processes))


def _names(environment: Environment) -> tuple[str, str]:
    """Return the variables that tell rank and number of processes."""
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return "RANK", "WORLD_SIZE"
    mpi = next((names for names in _MPI if all(name in environment for name in names)), None)
    if mpi is not None:  # before Slurm's: mpirun's own daemons are steps of srun
        return mpi
    if _in_step(environment):
        return "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
    return "RANK", "WORLD_SIZE"


def _in_step(environment: Environment) -> bool:
    """Return whether srun started this process; a batch script has most of Slurm's variables too."""
    rank = environment.get("SLURM_PROCID")
    return rank is not None and ("SLURM_STEP_ID" in environment or rank != "0")


def _local_rank(environment: Environment, processes: int) -> int | None:
    """Return the number of this process on its machine; None if several could share it and nothing tells."""
    known = [name for name in LOCAL_RANKS if name in environment]
    if "SLURM_PROCID" in environment and not _in_step(environment):  # the batch script's, not this process's
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
