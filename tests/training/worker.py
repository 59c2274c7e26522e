"""What torchrun starts in the tests: `worker.py CONFIG [resume]`, with FSDP2 on CPUs, which accelerate leaves out."""

import sys
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

from aviot.training.reading import read_config
from aviot.training.run import train
from aviot.training.trainer import AviotTrainer

create = AviotTrainer.create_accelerator_and_postprocess


def with_shards_on_cpus(self: Any) -> None:
    """Accelerate's own steps for FSDP on GPUs, taken on CPUs."""
    create(self)
    if self.args.fsdp and not self.is_fsdp_enabled:
        state = self.accelerator.state
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
        state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        self.is_fsdp_enabled = True


if __name__ == "__main__":
    AviotTrainer.create_accelerator_and_postprocess = with_shards_on_cpus  # type: ignore[method-assign]
    train(read_config(sys.argv[1]), resume=sys.argv[2:] == ["resume"])
