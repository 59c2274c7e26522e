"""What a person sees of a run: a bar where there is a terminal, lines where there is none."""

import sys
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback

from aviot.utils.printing import SafeConsole, SafeProgress


class ProgressDisplay(TrainerCallback):
    """Shows the first process's view; the others say nothing."""

    def __init__(self) -> None:
        self._console = SafeConsole(stderr=True)
        self._bar: SafeProgress | None = None
        self._task: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say where a resumed run stands, and draw the bar there."""
        if state.is_world_process_zero and state.global_step:
            self._print(f"resuming after step {state.global_step} of {state.max_steps}")
        if not state.is_world_process_zero or not sys.stderr.isatty():
            return
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = SafeProgress(*columns, TextColumn("{task.description}"), console=self._console)
        self._task = self._bar.add_task("", total=state.max_steps, completed=state.global_step)
        self._bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the newest line."""
        if not state.is_world_process_zero or not logs:
            return
        if "held_out_loss" in logs:
            self._print(f"step {state.global_step}/{state.max_steps}: {held_out_sentence(logs)}")
        elif "loss" in logs and self._bar is not None:
            self._bar.update(self._task, description=sentence(logs))
        elif "loss" in logs:
            self._print(f"step {state.global_step}/{state.max_steps}: {sentence(logs)}")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say that a checkpoint is whole."""
        if state.is_world_process_zero:
            self._print(f"saved checkpoint-{state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the bar as it ended."""
        self.close()

    def close(self) -> None:
        """Give the terminal back, also when the run failed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LogLastStep(TrainerCallback):
    """Logs the last step, wherever it falls between two lines of the log."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a line at the end."""
        if state.global_step >= state.max_steps:
            control.should_log = True


def sentence(logs: dict[str, float]) -> str:
    """A line of the log in words."""
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
            parts.append(f"{logs['failed_examples']:.0f} passed over")
    return ", ".join(parts)


def held_out_sentence(logs: dict[str, float]) -> str:
    """Return the held-out loss in words."""
    parts = f"language {logs['held_out_lm_loss']:.4f}, transport {logs['held_out_transport_loss']:.4f}"
    return f"held-out loss {logs['held_out_loss']:.4f} ({parts}), {logs['held_out_examples']:.0f} examples"
