"""Training on several processes: decisions of rank 0, weights of sharded models, and safe loading of their states."""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list
from torch import distributed, nn
from torch.distributed.checkpoint import filesystem
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.serialization import safe_globals
from transformers import TrainerCallback

from aviot.models import AviotForConditionalGeneration

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NOT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_SHARD_INDEX_CLASSES = {
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
"""Names that the index of FSDP2's shards may contain, by module."""
_NO_MODULE = -1  # DeepSpeed numbers modules from 0

Decision = TypeVar("Decision")


class RankZeroError(ValueError):
    """An error that rank 0 raised and reports itself; the other ranks raise this one."""


def decide_on_rank_zero(decide: Callable[[], Decision]) -> Decision:
    """Return rank 0's result of `decide` on all ranks; if it raises, all ranks raise, so that none waits for it."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return decide()
    if distributed.get_rank() > 0:
        decision, refusal = broadcast_object_list([None, None])
        if refusal is not None:
            raise RankZeroError(refusal)
        return decision
    try:
        decision = decide()
    except BaseException as error:
        broadcast_object_list([None, f"{type(error).__name__}: {error}"])
        raise
    broadcast_object_list([decision, None])
    return decision


class GatherPreDecoder(TrainerCallback):
    """A callback that keeps the weights of the modules before the decoder gathered on every rank under ZeRO-3.

    Ranks do not run the same modules there: one rank's video may be too short to be compressed, another's may need more
    encoder calls. If each call gathered weights, ranks would wait for each other. DeepSpeed keeps weights below a
    threshold on every rank, but only once it has seen the same modules run twice, which never happens here. This
    callback therefore removes its hooks from these modules and marks their weights, which have to be below the
    threshold, as in use.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Remove the modules' hooks; hooks of the weights, which reduce gradients, stay."""
        weights = list(_pre_decoder_weights(model))
        largest = max(weight.ds_numel for weight in weights)
        if not all(weight.ds_persist for weight in weights):
            raise ValueError(
                f"stage3_param_persistence_threshold must be at least {largest:,}, the largest weight before the "
                "decoder; raise it in the parallelism file"
            )
        for part in _pre_decoder(model):
            for module in part.modules():
                module._forward_pre_hooks.clear()
                module._forward_hooks.clear()

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Gather the weights, which the optimizer's step releases."""
        gather_pre_decoder(model)


def gather_pre_decoder(model: AviotForConditionalGeneration) -> None:
    """Gather ZeRO-3's partitioned weights before the decoder; a collective call of all ranks."""
    weights = list(_pre_decoder_weights(model))
    weights[0].all_gather(weights)
    for weight in weights:
        weight.ds_active_sub_modules.add(_NO_MODULE)


def _pre_decoder(model: AviotForConditionalGeneration) -> Iterator[nn.Module]:
    return (part for name, part in model.model.named_children() if name != "language_model")


def _pre_decoder_weights(model: AviotForConditionalGeneration) -> Iterator[Any]:
    return (weight for part in _pre_decoder(model) for weight in part.parameters())


def fsdp_precision_policy() -> MixedPrecisionPolicy:
    """Return a policy for FSDP2 with weights gathered in bfloat16, gradients reduced and losses returned in float32.

    Accelerate's default uses bfloat16 for all three, which would round every micro batch's loss to three digits.
    """
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@contextmanager
def weights_only_loading(*, deepspeed: bool = False) -> Iterator[None]:
    """Restrict torch's loading to tensors and plain values, for every caller.

    DeepSpeed, and torch for FSDP2's shards, would otherwise unpickle any object, which can run code.
    """
    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    try:
        with safe_globals(_deepspeed_classes() if deepspeed else []), _restricted_shard_index():
            yield
    finally:
        del os.environ[_FORCE]
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def _restricted_shard_index() -> Iterator[None]:
    """Make torch.distributed.checkpoint unpickle only `_SHARD_INDEX_CLASSES` from its shard index."""

    class IndexUnpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if module == "torch" and isinstance(value := getattr(torch, name, None), torch.dtype | torch.layout):
                return value
            if name in _SHARD_INDEX_CLASSES.get(module, ()):
                return super().find_class(module, name)
            raise pickle.UnpicklingError(
                f"the shard index contains {module}.{name}, which is not allowed there; it is not loaded"
            )

    restricted = SimpleNamespace(**vars(pickle) | {"load": lambda file: IndexUnpickler(file).load()})
    filesystem.pickle = restricted  # type: ignore[assignment, attr-defined]
    try:
        yield
    finally:
        filesystem.pickle = pickle  # type: ignore[attr-defined]


def _deepspeed_classes() -> list[Any]:
    """Return the classes that DeepSpeed's checkpoints contain beside tensors; loading them runs no code."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [LossScaler, ZeroStageEnum, fragment_address]
