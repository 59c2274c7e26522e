"""Hugging Face's Trainer with AVIOT's data, a loss over the global batch, and atomic, verifiable checkpoints."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate.utils import gather_object, save_fsdp_optimizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainerCallback, TrainerControl, TrainingArguments
from transformers.trainer import SCHEDULER_NAME, TRAINER_STATE_NAME

from aviot.data import Batch, FailureTally
from aviot.methods.aviot import Compression
from aviot.training import saving
from aviot.training.datasets import TrainingData
from aviot.training.distributed import fsdp_precision_policy, gather_pre_decoder, weights_only_loading
from aviot.training.identity import naming_load_failures, write_identity
from aviot.training.loss import (
    Losses,
    Totals,
    TrainingStopped,
    count_supervised,
    describe_examples,
    micro_batch_losses,
    require_finite,
)
from aviot.training.manifest import Manifest, RunReference, hash_own_files, write_manifest
from aviot.training.model_setup import feature_dtype
from aviot.training.progress import Meters


class _AtStepEnd(TrainerCallback):
    """A callback that does something at the end of every optimizer step, before the step is logged or saved."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Do it."""
        self._do()


def _evidence_of(compressions: Sequence[Compression | None]) -> list[Tensor]:
    """Return the evidence of the questions that a calibrated allocation asked for it."""
    found = (None if compression is None else compression.evidence for compression in compressions)
    return [evidence.detach() for evidence in found if evidence is not None]


class AviotTrainer(Trainer):
    """A Trainer for a model whose frozen weights are already selected.

    `identity` and `run` are written into every checkpoint.
    """

    control: TrainerControl

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        data: TrainingData,
        *,
        identity: dict[str, Any],
        run: RunReference | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        held_out = None if data.held_out is None else data.held_out.dataset
        super().__init__(
            model=model, args=args, train_dataset=data.dataset, eval_dataset=held_out, callbacks=list(callbacks)
        )
        if self.args.fsdp and not self.is_fsdp_enabled:
            raise ValueError(
                "fsdp needs several processes with a GPU each; start more with torchrun, or set parallelism=null"
            )
        if self.is_fsdp_enabled and args.bf16:
            self.accelerator.state.fsdp_plugin.mixed_precision_policy = fsdp_precision_policy()
        self.model_accepts_loss_kwargs = True  # the loss is that of the global batch; the Trainer must not scale it
        self.data = data
        self.identity = identity
        self.run = RunReference() if run is None else run
        self._saved_step = -1
        self._weight = model.config.transport_loss_weight
        self._tally = FailureTally(data.dataset.config)
        self._evidence: list[Tensor] = []  # of this step's questions, where the allocation is calibrated
        self.add_callback(_AtStepEnd(self._recalibrate))
        levels = [level.name for level in model.config.compressor.active_levels]
        self._meters = Meters(levels, data.trained.tokens_per_support)

    def get_train_dataloader(self) -> Any:
        """Return this process's micro batches from the resumed step on."""
        return self.data.batches(self._resumed_step)

    def train(self, resume_from_checkpoint: Any = None, *, step: int = 0, **kwargs: Any) -> Any:
        """Train from the first step, or resume from a checkpoint that was written after `step`."""
        self._resumed_step = step
        with weights_only_loading(deepspeed=self.is_deepspeed_enabled):
            return super().train(None if resume_from_checkpoint is None else str(resume_from_checkpoint), **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Totals | None]:
        """Return the micro batches of an optimizer step, and its totals over all processes."""
        start = perf_counter()
        batches = [batch for _, batch in zip(range(num_batches), epoch_iterator, strict=False)]
        self._meters.add_step(perf_counter() - start)
        if not batches:
            return [], None
        for batch in batches:
            self._tally.observe(len(batch["ids"]), batch["failures"])
        own = [sum(map(count_supervised, batches)), sum(len(batch["ids"]) for batch in batches)]
        tokens, examples = self.accelerator.reduce(torch.tensor(own, device=device), "sum").tolist()
        return batches, Totals(tokens, examples)

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return a micro batch's share of the global loss, times the number of processes, which average gradients."""
        batch, totals = inputs, num_items_in_batch
        out = self._forward(model, batch)
        losses: Losses = micro_batch_losses(out, batch, totals, self._weight)
        require_finite(losses, batch, self.state.global_step, out.compressions)
        self._meters.add_micro_batch(losses, batch, totals, out.compressions)
        self._evidence += _evidence_of(out.compressions)
        loss = losses.total * self.accelerator.num_processes
        return (loss, out) if return_outputs else loss

    def _recalibrate(self) -> None:
        """Move the allocation's threshold by this step's questions, in an order that does not depend on processes."""
        if self.data.trained.compressor.allocation.rule != "calibrated":
            return
        own = torch.stack(self._evidence) if self._evidence else torch.empty(0, device=self.args.device)
        missing = self.data.layout.global_batch - len(own)  # processes may have different numbers of questions
        gathered = self._gather(F.pad(own.double(), (0, missing), value=math.nan)).flatten().tolist()
        self._evidence.clear()
        self.data.trained.observe(sorted(each for each in gathered if not math.isnan(each)))

    def _forward(self, model: nn.Module, batch: Batch) -> Any:
        """Run the model on a batch with the warm-ups of the current step, and cache new encoder features."""
        step = self.state.global_step
        try:
            out = model(**self.data.trained.inputs(batch, encoded=self.data.cache is not None), step=step)
        except ValueError as error:
            raise TrainingStopped(f"step {step}: {error}, on {describe_examples(batch)}") from error
        if self.data.cache is not None:
            self.data.trained.keep(batch, out.encoded, self.data.cache, feature_dtype(self.data.config))
        return out

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return and log the held-out loss; weights, random states and the training mode do not change."""
        held_out, model, start = self.data.held_out, self.model_wrapped, perf_counter()
        if held_out is None:
            raise ValueError("there are no held-out records; set held_out.records to a file of them")
        was_training = model.training
        model.eval()
        if self.is_deepspeed_enabled and self.args.hf_deepspeed_config.is_zero3():
            gather_pre_decoder(self.model)
        try:
            metrics = held_out.losses(
                lambda batch: self._forward(model, self._prepare_inputs(batch)),
                lambda sums: self.accelerator.reduce(sums, "sum"),
                self._weight,
                self.args.device,
            )
        finally:
            model.train(was_training)
        self._meters.exclude_time(perf_counter() - start)
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _init_training_state(self, max_steps: int, *rest: Any) -> Any:
        """Set intervals from the configuration, which may have changed since the checkpoint was written."""
        state = super()._init_training_state(max_steps, *rest)
        self.state.compute_steps(self.args, max_steps)
        return state

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None and not torch.isfinite(torch.as_tensor(norm)):
            raise TrainingStopped(
                f"step {self.state.global_step}: the loss is finite and its gradient is not. "
                "The last checkpoint is intact: start a new run from it with a lower learning rate in another output"
            )
        return norm

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0: the Trainer's estimate counts text only."""
        return 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the metrics since the last line to the Trainer's line, and log it."""
        if "loss" in logs:
            logs |= self._meters.read(self._gather, self.args.device, self._tally.failed)
            threshold = self.data.trained.compressor.allocation.evidence_threshold
            logs |= {} if threshold is None else {"evidence_threshold": threshold}
        self.state.epoch = self.state.global_step * self.data.layout.global_batch / len(self.data.dataset)
        super().log(logs, start_time)

    def _gather(self, values: Tensor) -> Tensor:
        return self.accelerator.gather(values[None])

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        run, step = Path(self.args.output_dir), self.state.global_step
        if self._saved_step == step:
            return
        with saving.naming_write_failures(run, step):
            if self.args.should_save:
                saving.begin(run, step)
            self.accelerator.wait_for_everyone()
            folder = saving.partial_path(run, step)
            self._write(folder)
            self.accelerator.wait_for_everyone()
            saving.make_durable(folder)
            files = gather_object(hash_own_files(folder, self.args.process_index, self.args.world_size))
            if self.args.should_save:
                write_manifest(folder, Manifest(step, self.args.world_size, self.run, dict(files)))
                saving.finish(run, step)
                saving.rotate(run, self.data.config.saving.keep)
            self.accelerator.wait_for_everyone()
        self._saved_step = step

    def _write(self, folder: Path) -> None:
        """Write weights that `from_pretrained` reads, and the states that resuming needs."""
        state = self.accelerator.get_state_dict(self.model_wrapped)
        if self.args.should_save:
            self.data.trained.write(self.accelerator.unwrap_model(self.model), folder, state, self.data.config)
        del state
        self._save_optimizer_and_scheduler(str(folder))
        self._save_rng_state(str(folder))
        if self.args.should_save:
            self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
            write_identity(folder, self.identity)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        with naming_load_failures(resume_from_checkpoint):
            return super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with naming_load_failures(checkpoint):
            super()._load_rng_state(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Do nothing: the run has already loaded the checkpoint's weights."""
