"""Everything about a batch of questions that can be chosen, checked once, and what makes two batches the same."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aviot.backbones.loading import LoadOptions
from aviot.budget import AutoBudget, Budget
from aviot.evaluation.config import Setting
from aviot.evaluation.item import Instructions
from aviot.evaluation.reading import Items
from aviot.methods import registry
from aviot.request import MAX_NEW_TOKENS, check_sampling, checkpoint_folder
from aviot.utils.files import check_output
from aviot.utils.machine import check_device_name
from aviot.utils.moved import renamed
from aviot.utils.printing import json_text
from aviot.utils.values import as_whole, require_whole
from aviot.video.checks import ReadLimits

__getattr__ = renamed(__name__)


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """The questions of a batch, the checkpoint that answers them, and the number of workers.

    `budget` of None is the checkpoint's own. `address` is that of a Ray cluster, on each of whose machines the
    checkpoint and the videos have the same paths; None starts Ray on this machine alone. `workers` of None is one per
    GPU, or one. `together` questions of a video go through the decoder at a time. `base` is the place of an adapter's
    base model, if not the recorded one.
    """

    questions: Path
    model: Path
    out: Path
    videos: Path | None = None
    method: str = registry.DEFAULT
    budget: Budget | AutoBudget | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    instructions: Instructions = field(default_factory=Instructions)
    max_new_tokens: int = MAX_NEW_TOKENS
    together: int = 1
    limits: ReadLimits = field(default_factory=ReadLimits)
    loading: LoadOptions = field(default_factory=LoadOptions)
    base: Path | None = None
    device: str = "auto"
    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        require_whole(self, "max_new_tokens", "together")
        if self.workers is not None and ((count := as_whole(self.workers)) is None or count < 1):
            raise ValueError(f"workers must be a whole number of at least 1, got {self.workers!r}")
        registry.check_name(self.method)
        check_sampling(self.sampling)
        check_device_name(self.device)
        checkpoint_folder(self.model)
        check_output(self.out)
        if self.out.resolve() == self.questions.resolve():
            raise ValueError(f"{self.out} has the questions; name another file for the answers")

    @property
    def setting(self) -> Setting:
        """The method and budget; without one, workers take the checkpoint's."""
        return Setting.of(self.method, self.budget)

    def identity(self, items: Items) -> dict[str, Any]:
        """Return everything that decides an answer; batches with the same can continue each other."""
        from aviot.evaluation.manifest import weight_hashes  # imports torch, which finding mistakes need not wait for

        weights = json_text(weight_hashes(self.model)).encode()
        return {
            "questions": items.digest,
            "count": len(items),
            "videos": str((self.videos or items.folder).absolute()),
            "weights": hashlib.sha256(weights).hexdigest(),
            "method": self.method,
            "budget": None if self.budget is None else self.budget.text,
            "sampling": {name: value for name, value in self.sampling.items() if value is not None},
            "instructions": {"choice": self.instructions.choice, "open": self.instructions.open},
            "max_new_tokens": self.max_new_tokens,
            "together": self.together,
            **self.loading.recorded,
        }
