"""Metrics of a run between two lines of its log, and their display: a bar on a terminal, otherwise lines."""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from transformers import TrainerCallback

from aviot.data import Batch
from aviot.methods.aviot import Compression
from aviot.methods.aviot.objective import ObjectiveTerms
from aviot.training.loss import Losses, Totals
from aviot.utils.printing import SafeConsole, SafeProgress

Gather = Callable[[Tensor], Tensor]  # from [n] on each process to [processes, n]


class Meters:
    """Sums over micro batches, which stay on the device until a line is logged.

    `tokens_per_support` of None: the decoder reads the compressor's output, one token for each position.
    """

    def __init__(self, levels: Sequence[str], tokens_per_support: int | None) -> None:
        self._levels = tuple(levels)
        self._tokens_per_support = tokens_per_support
        self._clear()

    def _clear(self) -> None:
        self._per_step: dict[str, Tensor | float] = defaultdict(float)  # add up to a step's value
        self._per_example: dict[str, Tensor | float] = defaultdict(float)
        self._steps = 0
        self._examples = self._compressed = self._tokens = 0
        self._data_wait = 0.0
        self._since = perf_counter()

    def add_step(self, data_wait: float) -> None:
        """Count an optimizer step that waited `data_wait` seconds for its data."""
        self._steps += 1
        self._data_wait += data_wait

    def exclude_time(self, seconds: float) -> None:
        """Exclude time that was not spent on training from the speeds."""
        self._since += seconds

    def add_micro_batch(
        self, losses: Losses, batch: Batch, totals: Totals, compressions: Sequence[Compression]
    ) -> None:
        """Add a micro batch's losses, tokens, ratios and compressor statistics."""
        self._per_step["lm_loss"] += losses.lm.detach()
        self._per_step["transport_loss"] += losses.transport.detach()
        self._tokens += int(batch["attention_mask"].sum()) - len(compressions)
        for compression in compressions:
            for name, term in compression.terms._asdict().items():
                self._per_step[f"transport/{name}"] += term.detach() / totals.examples
            self._tokens += compression.path[-1] * (self._tokens_per_support or compression.features.shape[-2])
            if compression.usage is not None:
                self._compressed += 1
                self._per_example["budget_entropy"] += compression.usage.budget_entropy
                for level, share in compression.usage.shares.items():
                    self._per_example[f"gate/{level}"] += share
        self._examples += len(batch["ids"])
        self._per_example["ratio"] += sum(batch["ratios"])

    def read(self, gather: Gather, device: torch.device, failed: int) -> dict[str, float]:
        """Return the metrics over all processes since the last call and reset them; every process has to call this."""
        per_step = ["lm_loss", "transport_loss", *(f"transport/{name}" for name in ObjectiveTerms._fields)]
        per_compressed = ["budget_entropy", *(f"gate/{level}" for level in self._levels)]
        seconds = perf_counter() - self._since
        values = [self._per_step[name] for name in per_step]
        values += [self._per_example[name] for name in [*per_compressed, "ratio"]]
        values += [self._compressed, self._examples, self._tokens, self._data_wait, seconds, failed, _memory(device)]
        table = gather(torch.stack([torch.as_tensor(value, device=device, dtype=torch.float64) for value in values]))
        rows = table.view(-1, len(values)).cpu()
        sums, steps = iter(rows.sum(0).tolist()), max(1, self._steps)
        line = {name: next(sums) / steps for name in per_step}
        usage = {name: next(sums) for name in per_compressed}
        ratio, compressed, examples, tokens, data_wait, spent, all_failed, _ = sums
        self._clear()
        if not examples:
            return {}
        line |= {name: value / compressed for name, value in usage.items() if compressed}
        return line | {
            "ratio": ratio / examples,
            "tokens_per_second": tokens * len(rows) / spent,
            "videos_per_second": examples * len(rows) / spent,
            "data_wait": data_wait / spent,
            "memory_gib": rows[:, -1].max().item(),
            "failed_examples": all_failed,
        }


def _memory(device: torch.device) -> float:
    """Return the peak memory allocated on a GPU in GiB; 0 on a CPU, where it is not measured."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0


class ProgressDisplay(TrainerCallback):
    """A progress display on stderr; only rank 0 prints."""

    def __init__(self) -> None:
        self._console = SafeConsole(stderr=True)
        self._bar: SafeProgress | None = None
        self._task: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print the step of a resumed run, and draw the bar at that step."""
        if state.is_world_process_zero and state.global_step:
            self._print(f"resuming after step {state.global_step} of {state.max_steps}")
        if not state.is_world_process_zero or not sys.stderr.isatty():
            return
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = SafeProgress(*columns, TextColumn("{task.description}"), console=self._console)
        self._task = self._bar.add_task("", total=state.max_steps, completed=state.global_step)
        self._bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the newest line of the log."""
        if not state.is_world_process_zero or not logs:
            return
        if "held_out_loss" in logs:
            self._print(f"step {state.global_step}/{state.max_steps}: {format_held_out(logs)}")
        elif "loss" in logs and self._bar is not None:
            self._bar.update(self._task, description=format_log(logs))
        elif "loss" in logs:
            self._print(f"step {state.global_step}/{state.max_steps}: {format_log(logs)}")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print that a checkpoint is complete."""
        if state.is_world_process_zero:
            self._print(f"saved checkpoint-{state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the bar at its last state."""
        self.close()

    def close(self) -> None:
        """Stop the bar and restore the terminal, also after a failure."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LogLastStep(TrainerCallback):
    """A callback that logs the last step whatever the logging interval is."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request a line for the last step."""
        if state.global_step >= state.max_steps:
            control.should_log = True


def format_log(logs: dict[str, float]) -> str:
    """Return a line of the log as text."""
    parts = [f"loss {logs['loss']:.4f}"]
    if "lm_loss" in logs:
        parts[0] += f" (language {logs['lm_loss']:.4f}, transport {logs['transport_loss']:.4f})"
        parts += [
            f"ratio {logs['ratio']:.1f}",
            f"{logs['tokens_per_second']:,.0f} tokens/s",
            f"{logs['videos_per_second']:.2f} videos/s",
            f"data wait {logs['data_wait']:.0%}",
        ]
        if logs["memory_gib"]:
            parts.append(f"{logs['memory_gib']:.1f} GiB")
        if logs["failed_examples"]:
            parts.append(f"{logs['failed_examples']:.0f} skipped")
    return ", ".join(parts)


def format_held_out(logs: dict[str, float]) -> str:
    """Return the held-out loss as text."""
    parts = f"language {logs['held_out_lm_loss']:.4f}, transport {logs['held_out_transport_loss']:.4f}"
    return f"held-out loss {logs['held_out_loss']:.4f} ({parts}), {logs['held_out_examples']:.0f} examples"
