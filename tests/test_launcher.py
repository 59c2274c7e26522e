"""Rank and GPU of a process from the environment variables of several launchers."""

import pytest
import torch

from aviot.evaluation.batching import Shard
from aviot.utils.launcher import World
from aviot.utils.machine import join_launcher, process_device

TWO_OF_FOUR = {"RANK": "2", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    "name",
    [
        "LOCAL_RANK",
        "SLURM_LOCALID",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "PALS_LOCAL_RANKID",
        "FLUX_TASK_LOCAL_ID",
    ],
)
@pytest.mark.parametrize("device", ["auto", "cuda", None])
def test_each_process_of_a_machine_takes_its_own_gpu(name, device):
    for local in range(4):
        environment = {"RANK": str(4 + local), "WORLD_SIZE": "8", name: str(local)}
        assert process_device(device, environment, gpus=4) == torch.device("cuda", local)


def test_torchruns_variables_take_precedence():
    environment = TWO_OF_FOUR | {"LOCAL_RANK": "1", "SLURM_LOCALID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert World.here(environment) == World(2, 4, 1)
    assert process_device("auto", environment, gpus=2) == torch.device("cuda", 1)


def test_more_processes_than_gpus_share_them():
    assert process_device("auto", TWO_OF_FOUR | {"LOCAL_RANK": "3"}, gpus=2) == torch.device("cuda", 1)


def test_a_process_that_cannot_know_its_gpu_is_refused():
    with pytest.raises(ValueError, match=r"process 2 of 4 and sees 8 GPUs.*LOCAL_RANK.*CUDA_VISIBLE_DEVICES"):
        process_device("auto", TWO_OF_FOUR, gpus=8)
    assert process_device("auto", TWO_OF_FOUR, gpus=1) == torch.device("cuda", 0)  # it sees one alone
    assert process_device("auto", TWO_OF_FOUR | {"LOCAL_WORLD_SIZE": "1"}, gpus=8) == torch.device("cuda", 0)
    assert process_device("auto", {}, gpus=8) == torch.device("cuda", 0)  # one process
    assert process_device("cpu", TWO_OF_FOUR, gpus=8) == torch.device("cpu")
    assert process_device("auto", TWO_OF_FOUR, gpus=0).type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match="LOCAL_RANK must be a number of at least 0, got 'x'"):
        process_device("auto", TWO_OF_FOUR | {"LOCAL_RANK": "x"}, gpus=8)


def test_a_named_device_is_used():
    with pytest.raises(ValueError, match="no GPU can be used here as cuda:99"):
        process_device("cuda:99", TWO_OF_FOUR, gpus=8)
    with pytest.raises(ValueError, match="device must be auto"):
        process_device("tpu", TWO_OF_FOUR, gpus=8)


MPIRUN = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "16", "SLURM_NTASKS": "16", "SLURM_LOCALID": "3"}


@pytest.mark.parametrize(
    ("environment", "world"),
    [
        (STEP | {"SLURM_PROCID": "11"}, World(11, 16, 3)),
        (STEP | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, World(0, 16, 0)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}, World(1, 2, 1)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}, World(0, 1, 0)),  # a batch script
        ({"SLURM_NTASKS": "8"}, World(0, 1, 0)),  # salloc's shell
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, World(0, 1, 0)),
        (MPIRUN, World(5, 8, 1)),
        (MPIRUN | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, World(5, 8, 1)),  # mpirun in a batch script
        (MPIRUN | STEP | {"SLURM_PROCID": "1", "SLURM_LOCALID": "0"}, World(5, 8, 1)),  # its daemon is a step of srun
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, World(3, 8, None)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, World(1, 2, 1)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, World(1, 2, None)),
        ({}, World(0, 1, 0)),
    ],
)
def test_ranks_of_other_launchers(environment, world):
    assert World.here(environment) == world
    assert Shard.here(environment) == Shard(world.rank, world.processes)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK must be a number below WORLD_SIZE"),
        ({"RANK": "x"}, "RANK must be a number below WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 and RANK is not set"),
        ({"SLURM_PROCID": "9", "SLURM_NTASKS": "8"}, "SLURM_PROCID must be a number below SLURM_NTASKS"),
    ],
)
def test_inconsistent_ranks(environment, message):
    with pytest.raises(ValueError, match=message):
        World.here(environment)


def test_variables_for_accelerate_follow_srun():
    environment = STEP | {"SLURM_PROCID": "11"}
    join_launcher(environment, gpus=8)
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["LOCAL_RANK"]) == ("11", "16", "3")
    isolated = STEP | {"SLURM_PROCID": "11"}
    join_launcher(isolated, gpus=1)
    assert isolated["LOCAL_RANK"] == "0"  # the only GPU that it sees
    kept = TWO_OF_FOUR | {"LOCAL_RANK": "2"}
    assert join_launcher(dict(kept), gpus=8) == World(2, 4, 2)
    single: dict[str, str] = {}
    join_launcher(single, gpus=8)
    assert single == {}
    with pytest.raises(ValueError, match="sees 8 GPUs"):
        join_launcher(dict(TWO_OF_FOUR), gpus=8)
