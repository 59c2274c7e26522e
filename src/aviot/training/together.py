"""Decisions that one process makes for all of a run, so that none waits for another that has refused."""

from collections.abc import Callable
from typing import TypeVar

from accelerate.utils import broadcast_object_list
from torch import distributed

Decided = TypeVar("Decided")


class RefusedElsewhere(ValueError):
    """What the first process refused; it says so itself."""


def decided_by_first(decide: Callable[[], Decided]) -> Decided:
    """Return what the first process decides, in all of them; if it refuses, they raise too, none of them waiting."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return decide()
    if distributed.get_rank() > 0:
        decided, refusal = broadcast_object_list([None, None])
        if refusal is not None:
            raise RefusedElsewhere(refusal)
        return decided
    try:
        decided = decide()
    except BaseException as error:
        broadcast_object_list([None, f"{type(error).__name__}: {error}"])
        raise
    broadcast_object_list([decided, None])
    return decided
