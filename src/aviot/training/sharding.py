"""What sharded engines need beside their settings."""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint import filesystem
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.serialization import safe_globals
from transformers import TrainerCallback

from aviot.models import AviotForConditionalGeneration

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NOT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_INDEX = {
    "pathlib": ("PosixPath",),
    "torch": ("Size",),
    "torch.serialization": ("_get_layout",),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    ),
}
"""What the index of FSDP2's shards is made of, by module."""
_NO_MODULE = -1  # DeepSpeed numbers modules from 0


class HoldFront(TrainerCallback):
    """Takes what stands before the decoder out of ZeRO-3's gathering: its weights are whole in every process.

    Processes do not run the same modules there: one's video may be too short to be compressed, another's need more
    calls of the encoder. Where each call gathers weights, processes would wait for each other. DeepSpeed keeps weights
    below a threshold, yet not before it has seen the same modules run twice, which never happens here. So its hooks
    are taken off these modules, and their weights, which have to be below the threshold, marked as in use.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Take the hooks off; gradients are reduced by hooks of the weights, which stay."""
        weights = list(_front_weights(model))
        largest = max(weight.ds_numel for weight in weights)
        if not all(weight.ds_persist for weight in weights):
            raise ValueError(
                f"stage3_param_persistence_threshold must be at least {largest:,}, the largest weight before the "
                "decoder; raise it in the engine's file"
            )
        for part in _front(model):
            for module in part.modules():
                module._forward_pre_hooks.clear()
                module._forward_hooks.clear()

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Hold the weights; the optimizer's step lets go of them."""
        hold_front(model)


def hold_front(model: AviotForConditionalGeneration) -> None:
    """Gather the weights before the decoder that are not whole, which all processes do together."""
    weights = list(_front_weights(model))
    weights[0].all_gather(weights)
    for weight in weights:
        weight.ds_active_sub_modules.add(_NO_MODULE)


def _front(model: AviotForConditionalGeneration) -> Iterator[nn.Module]:
    return (part for name, part in model.model.named_children() if name != "language_model")


def _front_weights(model: AviotForConditionalGeneration) -> Iterator[Any]:
    return (weight for part in _front(model) for weight in part.parameters())


def weights_alone_in_bfloat16() -> MixedPrecisionPolicy:
    """FSDP2's weights are gathered in bfloat16; gradients are added up and losses handed back in float32.

    Accelerate would do all three in bfloat16, and so round every micro batch's share of the loss to three digits.
    """
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@contextmanager
def only_plain_objects(*, deepspeed: bool = False) -> Iterator[None]:
    """Let torch read tensors and plain values and nothing else, whoever asks.

    DeepSpeed, and torch for the shards of FSDP2, would unpickle anything, which can run code.
    """
    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    try:
        with safe_globals(_deepspeed_classes() if deepspeed else []), _plain_metadata():
            yield
    finally:
        del os.environ[_FORCE]
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def _plain_metadata() -> Iterator[None]:
    """Let torch.distributed.checkpoint read the index of its shards, a pickle, by an unpickler that knows it alone."""

    class Index(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype | torch.layout):
                return found
            if name in _INDEX.get(module, ()):
                return super().find_class(module, name)
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no index of shards has; it is not loaded")

    safe = SimpleNamespace(**vars(pickle) | {"load": lambda file: Index(file).load()})
    filesystem.pickle = safe  # type: ignore[assignment, attr-defined]
    try:
        yield
    finally:
        filesystem.pickle = pickle  # type: ignore[attr-defined]


def _deepspeed_classes() -> list[Any]:
    """What DeepSpeed puts into its checkpoints beside tensors: values without behaviour when they are read."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [LossScaler, ZeroStageEnum, fragment_address]
