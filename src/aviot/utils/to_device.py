"""Copies to a device that do not wait for its queue.

A plain copy to a GPU waits until all queued work is done. A program with many small copies then never runs ahead, and
host and GPU take turns. A copy from pinned memory is queued like any other work.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(data: Tensor | NDArray[np.generic], device: torch.device) -> Tensor:
    """Return the data as a tensor on the device, without waiting for its queue."""
    tensor = data if isinstance(data, Tensor) else torch.from_numpy(data)
    if device.type != "cuda" or tensor.device.type == "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
