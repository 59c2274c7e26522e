"""Training: from a configuration file to checkpoints, on one process or many."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # otherwise DeepSpeed, if installed, prints its guess to stdout
