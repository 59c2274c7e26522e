"""The examples for several machines, run on one machine with two CPU processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import ROOT, write_settings

from aviot.training import saving

CLUSTER = ROOT / "examples" / "cluster"
SHORT = {"steps": 400, "global_batch": 2}

SRUN = """#!/bin/sh
echo $$ > "$SRUN_PID"
exec "$@"
"""
SCONTROL = """#!/bin/sh
[ "$1" = show ] && echo localhost
echo "$@" >> "$SCONTROL_LOG"
"""


@pytest.fixture
def slurm(tmp_path):
    """Return the environment of a job on one machine, with scripts in place of Slurm's commands."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": "here",
        "SLURM_GPUS_ON_NODE": "2",
    }
    files = {"SRUN_PID": str(tmp_path / "srun.pid"), "SCONTROL_LOG": str(tmp_path / "scontrol.log")}
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | job | files | {"PATH": path, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_the_slurm_example_stops_on_sigterm_and_is_queued_again(made, slurm):
    """Slurm signals every process of a job step; torchrun forwards the signal to the processes that it started."""
    output = made / "slurm"
    path = write_settings(made, "slurm", optimization=SHORT, saving={"every": 1000})
    job = subprocess.Popen(
        ["bash", str(CLUSTER / "train.sbatch")],
        env=slurm | {"CONFIG": str(path), "PARALLELISM": "null", "OUTPUT": str(output)},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed = []
    for line in job.stderr:
        printed.append(line)
        if line.startswith("step 1/400"):
            agent = int(Path(slurm["SRUN_PID"]).read_text())
            children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
            for process in (agent, *map(int, children)):
                os.kill(process, signal.SIGTERM)
    assert job.wait(60) != 0
    (step,) = saving.checkpoints(output)
    assert f"stopped by SIGTERM after step {step} of 400; wrote {output / f'checkpoint-{step}'}" in "".join(printed)
    calls = Path(slurm["SCONTROL_LOG"]).read_text().splitlines()
    assert calls == ["show hostnames here", f"requeue {slurm['SLURM_JOB_ID']}"]


@pytest.mark.slow
def test_the_accelerate_example(made):
    """All settings are the file's, except for the number of machines and processes."""
    path = write_settings(made, "accelerated", optimization={"steps": 1, "global_batch": 2})
    here = ["--num_machines", "1", "--num_processes", "2", "--main_process_port", "0"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CLUSTER / "accelerate.yaml")]
    done = subprocess.run(
        [*launch, *here, "-m", "aviot", "train", "--config", str(path)],
        env=os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == str(made / "accelerated" / "checkpoint-1")
    assert json.loads((made / "accelerated" / "run.json").read_text())[0]["processes"] == 2
