"""A configuration in the words of Hugging Face's Trainer."""

import math
import os
from typing import Any

import torch
from transformers import TrainingArguments

from aviot.data import BatchLayout
from aviot.training.config import TrainingConfig
from aviot.training.engine import Engine
from aviot.utils.machine import join_launcher


def layout_here(config: TrainingConfig) -> BatchLayout:
    """Return this process's part of the global batch; torchrun, accelerate, srun or mpirun tell which process it is."""
    world = join_launcher()
    chosen = config.optimization
    return BatchLayout(chosen.global_batch, chosen.micro_batch, world.processes, world.rank)


def training_arguments(config: TrainingConfig, engine: Engine, layout: BatchLayout) -> TrainingArguments:
    """Everything that the Trainer is to know; it joins the other processes here."""
    if engine.kind != "replicas" and "RANK" not in os.environ:
        raise ValueError(
            f"{engine.name} spreads a run over processes, and this is one alone; start it with torchrun "
            "--nproc-per-node, or set engine=null"
        )
    chosen, gpu = config.optimization, torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "output_dir": config.output,
        "max_steps": chosen.steps,
        "per_device_train_batch_size": layout.micro_batch,
        "gradient_accumulation_steps": layout.micro_steps,
        "learning_rate": chosen.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": math.ceil(chosen.warmup * chosen.steps),
        "weight_decay": chosen.weight_decay,
        "adam_beta1": chosen.betas[0],
        "adam_beta2": chosen.betas[1],
        "max_grad_norm": chosen.max_gradient_norm,
        "optim": "adamw_torch_fused" if gpu else "adamw_torch",
        "bf16": config.precision == "bf16",
        "seed": config.seed % 2**32,  # NumPy takes no more
        "logging_steps": config.logging.every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # such a loss ends the run
        "report_to": list(config.logging.report_to) or "none",
        "save_steps": config.saving.every,
        "ignore_data_skip": True,  # the sampler begins at the resumed step
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "log_level": "warning",
        "use_cpu": not gpu,
        "use_cache": True,  # what checkpoints say of answering; steps turn it off
        "ddp_find_unused_parameters": False,  # the model gives every weight a gradient
    }
    if config.held_out is not None:
        arguments |= {"eval_strategy": "steps", "eval_steps": config.held_out.every}
    made = TrainingArguments(**arguments, **engine.arguments())
    if layout.ranks == 1 and made.n_gpu > 1:
        made._n_gpu = 1  # threads that share a model are no way to train one; torchrun is
    return made
