"""The demo model in training: the model, its auxiliary heads, and the losses of every kind of batch."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from aviot.methods.aviot.allocation import recalibrated
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.answer_tasks import MOST_SUBJECTS, OptionHead, Options, RecallTargets
from aviot_lab.demo_model.batches import ConversationBatch, FrameBatch
from aviot_lab.demo_model.families import family_of
from aviot_lab.demo_model.histories import HistoryHead, histories_at
from aviot_lab.demo_model.learning import Answers
from aviot_lab.demo_model.naming import NamingLoss, names_of_cells
from aviot_lab.demo_model.patches import PatchHead, patch_targets
from aviot_lab.demo_model.relevance import QuestionFrames, allocation_loss, relevance, relevance_loss
from aviot_lab.methods import CompressorName

# Number of decoder layers before the states that an auxiliary head reads
HISTORY_LAYERS = 4
RECALL_LAYERS = 5
OPTION_LAYERS = 6

ALLOCATION_WEIGHT = 0.2  # of the allocation loss: with 1, its gradient would be the largest of all

Losses = dict[str, Tensor]  # by their names in a run's log
Shares = dict[str, Tensor]


class TrainingModel(nn.Module):
    """The model, the heads of its auxiliary tasks, and the compressor that it is trained with.

    Without `auxiliary`, answers alone are learned. The names of the submodules are part of a run's files.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerFast,
        compressor: CompressorName,
        *,
        auxiliary: bool = True,
    ) -> None:
        super().__init__()
        self.auxiliary = auxiliary
        self.model, self.family = model, family_of(model, tokenizer)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.reader = PatchHead(self.family.encoder_width)
            dim = self.family.width
            self.history_reader = HistoryHead(dim)
            self.recall_reader = HistoryHead(dim, MOST_SUBJECTS)
            self.option_reader = OptionHead(dim)
        self.naming = NamingLoss(tokenizer)
        self.states: dict[int, Tensor] = {}  # of the decoder in the present step, by the number of layers before
        for layers in (HISTORY_LAYERS, RECALL_LAYERS, OPTION_LAYERS):
            self.family.decoder_layers[layers - 1].register_forward_hook(partial(self._store, layers))
        self.compressor = compressor
        self.evidence: list[Tensor] = []  # of the questions since the last `recalibrate`

    def losses(self, batch: ConversationBatch | FrameBatch) -> tuple[Losses, Shares]:
        """Return the terms of a batch's loss, and shares of right predictions."""
        return self._frame_losses(batch) if isinstance(batch, FrameBatch) else self._conversation_losses(batch)

    def compile_layers(self) -> None:
        """Compile each kind of layer once, for sequences of any length."""
        for layer in (*self.family.encoder_layers, *self.family.decoder_layers):
            layer.compile(dynamic=True)

    def recalibrate(self) -> None:
        """Move the threshold of a calibrated allocation by the questions since the last call; waits for the device."""
        if self.evidence:
            self.model.reconfigure(recalibrated(self.model.config.compressor, torch.cat(self.evidence).tolist()))
            self.evidence.clear()

    def freeze_encoder(self) -> None:
        """Stop training the encoder; on a GPU, cast it to the precision that it is used in."""
        self.family.freeze_encoder()

    def _frame_losses(self, batch: FrameBatch) -> tuple[Losses, Shares]:
        family = self.family
        features = family.encode(batch.plans, len(batch.objects.x))
        looks, place = patch_targets(batch.objects, features.device, family.grid[0], family.stride)
        patches, right = self.reader.loss(features[:, 0], looks, place)
        names = names_of_cells(looks, place, family.grid, family.stride)
        named = self.naming.loss(family.cells(features).flatten(1, 3), family.words, names)
        return {"patches": patches, "naming": named}, {"right": right}

    def _conversation_losses(self, batch: ConversationBatch) -> tuple[Losses, Shares]:
        family = self.family
        with torch.no_grad():
            u = family.encode(batch.plans, batch.videos)
        answers = family.answer(u, batch, ratio=batch.ratio, compressor=self.compressor)
        if answers.compression is not None and answers.compression.evidence is not None:
            self.evidence.append(answers.compression.evidence.detach())
        losses = {"language": answers.language, "transport": family.transport_weight * answers.transport}
        shares = {"right": answers.right.float().mean()}
        if not self.auxiliary:
            self.states.clear()
            return losses, shares
        last = to_device(family.last_frames(batch.visible_names.shape[1]), u.device)
        if batch.whole:
            means = family.by_cell(answers.tokens).mean((2, 3))
            seen = family.merged_names(to_device(batch.visible_names, u.device))
            losses["naming"] = self.naming.loss(means, family.words, seen)
        if batch.question_frames is not None:
            self._add_relevance(batch, batch.question_frames, answers, losses, shares)
        start, end = len(batch.prefix), len(batch.prefix) + answers.tokens.shape[1]
        if batch.histories is not None:
            targets = histories_at(batch.histories, family.grid, family.stride, u.device)
            targets = targets.unflatten(0, (batch.videos, -1))[:, last].flatten(0, 2)[:, None]
            states = family.by_cell(self.states[HISTORY_LAYERS][:, start:end]).flatten(0, 3)
            losses["told"], shares["told_right"] = self.history_reader.loss(states, targets)
        if batch.recall is not None:
            targets = to_device(batch.recall.histories, u.device).long()
            states = _states_at(self.states[RECALL_LAYERS][:, end:], batch.recall)
            losses["recalled"], shares["recalled_right"] = self.recall_reader.loss(states, targets)
        if batch.options is not None:
            targets = to_device(batch.options.right, u.device)
            states = _states_at(self.states[OPTION_LAYERS][:, end:], batch.options)
            losses["chosen"], shares["chosen_right"] = self.option_reader.loss(states, targets)
        self.states.clear()
        return losses, shares

    def _add_relevance(
        self, batch: ConversationBatch, asked: QuestionFrames, answers: Answers, losses: Losses, shares: Shares
    ) -> None:
        """Add the losses on relevance and allocation."""
        asked = replace(asked, shown=self.family.merged_flags(asked.shown))
        frames = self.family.frame_means(answers)
        embeds = self.model.get_input_embeddings()(to_device(batch.ids, answers.x.device))
        cosines = relevance(frames, embeds, asked)
        losses["sought"], shares["sought_right"] = relevance_loss(cosines, asked)
        allocation, shares["allotted_right"] = allocation_loss(cosines, asked, self.family.compressor)
        losses["allotted"] = ALLOCATION_WEIGHT * allocation

    def _store(self, layers: int, layer: nn.Module, inputs: object, states: Tensor) -> None:
        self.states[layers] = states


def _states_at(states: Float[Tensor, "B L d"], positions: RecallTargets | Options) -> Float[Tensor, "N d"]:
    return states[to_device(positions.row, states.device), to_device(positions.place, states.device)]
