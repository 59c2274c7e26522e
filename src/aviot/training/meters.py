"""What a run shows of itself between two lines of its log."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter

import torch
from torch import Tensor

from aviot.data import Batch
from aviot.methods.aviot import Compression
from aviot.methods.aviot.objective import ObjectiveTerms
from aviot.training.loss import Losses, Totals

Gather = Callable[[Tensor], Tensor]  # [n] of each process to [processes, n]


class Meters:
    """Sums over micro batches, kept on the device until a line is logged."""

    def __init__(self, levels: Sequence[str], tokens_per_support: int) -> None:
        self._levels = tuple(levels)
        self._tokens_per_support = tokens_per_support
        self._clear()

    def _clear(self) -> None:
        self._per_step: dict[str, Tensor | float] = defaultdict(float)  # add up to a step's value
        self._per_example: dict[str, Tensor | float] = defaultdict(float)
        self._steps = 0
        self._examples = self._compressed = self._tokens = 0
        self._waited = 0.0
        self._since = perf_counter()

    def waited(self, seconds: float) -> None:
        """Count an optimizer step and how long it waited for its data."""
        self._steps += 1
        self._waited += seconds

    def leave_out(self, seconds: float) -> None:
        """Take time that was not spent on training out of the speeds."""
        self._since += seconds

    def observe(self, losses: Losses, batch: Batch, totals: Totals, compressions: Sequence[Compression]) -> None:
        """Count a micro batch."""
        self._per_step["lm_loss"] += losses.lm.detach()
        self._per_step["transport_loss"] += losses.transport.detach()
        self._tokens += int(batch["attention_mask"].sum()) - len(compressions)
        for compression in compressions:
            for name, term in compression.terms._asdict().items():
                self._per_step[f"transport/{name}"] += term.detach() / totals.examples
            self._tokens += compression.path[-1] * self._tokens_per_support
            if compression.usage is not None:
                self._compressed += 1
                self._per_example["budget_entropy"] += compression.usage.budget_entropy
                for level, share in compression.usage.shares.items():
                    self._per_example[f"gate/{level}"] += share
        self._examples += len(batch["ids"])
        self._per_example["ratio"] += sum(batch["ratios"])

    def read(self, gather: Gather, device: torch.device, failed: int) -> dict[str, float]:
        """The line to log over all processes, and a new beginning; every process has to call it."""
        names = ["lm_loss", "transport_loss", *(f"transport/{name}" for name in ObjectiveTerms._fields)]
        shares = ["budget_entropy", *(f"gate/{level}" for level in self._levels)]
        seconds = perf_counter() - self._since
        mine = [self._per_step[name] for name in names]
        mine += [self._per_example[name] for name in [*shares, "ratio"]]
        mine += [self._compressed, self._examples, self._tokens, self._waited, seconds, failed, _memory(device)]
        table = gather(torch.stack([torch.as_tensor(value, device=device, dtype=torch.float64) for value in mine]))
        rows = table.view(-1, len(mine)).cpu()
        sums, steps = iter(rows.sum(0).tolist()), max(1, self._steps)
        line = {name: next(sums) / steps for name in names}
        usage = {name: next(sums) for name in shares}
        ratio, compressed, examples, tokens, waited, spent, lost, _ = sums
        self._clear()
        if not examples:
            return {}
        line |= {name: value / compressed for name, value in usage.items() if compressed}
        return line | {
            "ratio": ratio / examples,
            "tokens_per_second": tokens * len(rows) / spent,
            "videos_per_second": examples * len(rows) / spent,
            "data_wait": waited / spent,
            "memory_gib": rows[:, -1].max().item(),
            "failed_examples": lost,
        }


def _memory(device: torch.device) -> float:
    """The most that has been held on a GPU; of a CPU, nothing is known that cheaply."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
