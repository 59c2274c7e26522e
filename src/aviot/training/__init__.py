"""Training: the paper's recipe on one process or many, from a configuration file to checkpoints."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault(
        "DS_ACCELERATOR", "cpu"
    )  # DeepSpeed, where it is installed, would say on stdout that it guessed
