"""Processes that end while gloo's threads still hold tensors end well."""

import subprocess
import sys

TALKING = """
import atexit, sys, torch, torch.distributed as dist
from aviot.training.ending import end_process

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
held = dist.distributed_c10d._get_default_group()  # as a mesh of FSDP2 holds it
for _ in range(20):
    tensor = torch.ones(2**21)
    tensor.known_to = "python"
    dist.all_reduce(tensor, async_op=True)
    del tensor
atexit.register(print, "registered")
dist.destroy_process_group()
print("done")
end_process()
"""


def test_threads_that_hold_tensors_do_not_abort_the_end(tmp_path):
    """Without the last line most tries end in "terminate called without an active exception"."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TALKING, str(tmp_path / "meet"), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        said, complained = process.communicate(timeout=120)
        assert process.returncode == 0, complained
        assert said.split() == ["done", "registered"]
