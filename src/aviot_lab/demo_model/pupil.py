"""The small model as it learns: what every kind of lesson asks of it."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.histories import HistoryReader, histories_at
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.demo_model.lessons import Lesson, Pictures
from aviot_lab.demo_model.naming import Naming, names_at
from aviot_lab.demo_model.options import OptionReader, Options
from aviot_lab.demo_model.patches import PatchReader, patch_targets
from aviot_lab.demo_model.recall import ASKED_AFTER, Recalls
from aviot_lab.demo_model.relevance import allotment_loss, relevance, relevance_loss
from aviot_lab.methods import CompressorName

# Layers of the decoder after which lessons read off its states
TOLD_AFTER = 4  # what the objects of a video have done,
RECALLED_AFTER = 5  # whom a question is about, where its answer begins,
CHOSEN_AFTER = 6  # and whether an option is right.

ALLOTTED = 0.2  # weight of how segments share supports: without it, no lesson's gradient would be larger


class Pupil(nn.Module):
    """The model, what it leaves behind when it has learnt, and the compressor that it learns with."""

    def __init__(
        self, model: AviotForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, compressor: CompressorName
    ) -> None:
        super().__init__()
        self.model = model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.reader = PatchReader(model.config.vision_config.hidden_size)
            dim = model.config.text_config.hidden_size
            self.history_reader = HistoryReader(dim)
            self.recall_reader = HistoryReader(dim, ASKED_AFTER)
            self.option_reader = OptionReader(dim)
        self.naming = Naming(tokenizer)
        self.kept: dict[int, Tensor] = {}  # the decoder's last states, by the number of layers
        for after in (TOLD_AFTER, RECALLED_AFTER, CHOSEN_AFTER):
            model.model.language_model.layers[after - 1].register_forward_hook(partial(self._keep, after))
        self.compressor = compressor

    def terms(self, lesson: Lesson | Pictures) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The terms of a lesson's loss, and what shares were right."""
        return self._patches(lesson) if isinstance(lesson, Pictures) else self._answers(lesson)

    def compile_layers(self) -> None:
        """Compile each kind of layer once, for sequences of any length."""
        path = self.model.model
        for layer in (*path.vision_tower.encoder.layers, *path.language_model.layers):
            layer.compile(dynamic=True)

    def keep_encoder(self) -> None:
        """Leave the encoder as it is from now on; on a GPU in the precision that it is used in."""
        tower = self.model.model.vision_tower
        if not next(tower.parameters()).requires_grad:
            return
        tower.requires_grad_(False)
        if tower.device.type == "cuda":
            tower.to(torch.bfloat16)

    def _patches(self, lesson: Pictures) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        path = self.model.model
        features = encode(self.model, lesson.plans, len(lesson.objects.x))
        looks, place = patch_targets(lesson.objects, features.device)
        patches, right = self.reader.loss(features[:, 0], looks, place)
        cells = self._cells(path.project(path.prepare(features, relevance=False).x))
        seen = names_at(looks, place, path.connector.grid, self.model.config.pool_stride)
        named = self.naming.loss(cells.flatten(1, 3), self._words, seen)
        return {"patches": patches, "naming": named}, {"right": right}

    def _answers(self, lesson: Lesson) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        with torch.no_grad():
            u = encode(self.model, lesson.plans, lesson.videos)
        found = answer(self.model, u, lesson, ratio=lesson.ratio, compressor=self.compressor)
        terms = {"language": found.language, "transport": self.model.config.transport_loss_weight * found.transport}
        shares = {"right": found.right.float().mean()}
        if lesson.ratio is None:
            means = self._cells(found.tokens).mean((2, 3))
            terms["naming"] = self.naming.loss(means, self._words, to_device(lesson.seen, u.device))
        if lesson.sought is not None:
            frames = self.model.model.connector.frame_means(found.x.flatten(0, 1)).unflatten(0, found.x.shape[:2])
            embeds = self.model.get_input_embeddings()(to_device(lesson.ids, u.device))
            likeness = relevance(frames, embeds, lesson.sought)
            terms["sought"], shares["sought_right"] = relevance_loss(likeness, lesson.sought)
            compressor = self.model.config.compressor
            allotted, shares["allotted_right"] = allotment_loss(likeness, lesson.sought, compressor)
            terms["allotted"] = ALLOTTED * allotted
        start, end = len(lesson.before), len(lesson.before) + found.tokens.shape[1]
        if lesson.histories is not None:
            grid, stride = self.model.model.connector.grid, self.model.config.pool_stride
            goal = histories_at(lesson.histories, grid, stride, u.device).flatten(0, 1)[:, None]
            states = self._cells(self.kept[TOLD_AFTER][:, start:end]).flatten(0, 3)
            terms["told"], shares["told_right"] = self.history_reader.loss(states, goal)
        if lesson.recalls is not None:
            goal = to_device(lesson.recalls.histories, u.device).long()
            states = _states_at(self.kept[RECALLED_AFTER][:, end:], lesson.recalls)
            terms["recalled"], shares["recalled_right"] = self.recall_reader.loss(states, goal)
        if lesson.options is not None:
            goal = to_device(lesson.options.right, u.device)
            states = _states_at(self.kept[CHOSEN_AFTER][:, end:], lesson.options)
            terms["chosen"], shares["chosen_right"] = self.option_reader.loss(states, goal)
        self.kept.clear()
        return terms, shares

    def _keep(self, after: int, layer: nn.Module, given: object, states: Tensor) -> None:
        self.kept[after] = states

    @property
    def _words(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def _cells(self, tokens: Tensor) -> Tensor:
        """The decoder's tokens of videos by frame, row and column, without the rows' separators."""
        rows, columns = self.model.model.connector.pooled
        return tokens.unflatten(1, (-1, rows, columns + 1))[..., :-1, :]


def _states_at(states: Float[Tensor, "B L d"], places: Recalls | Options) -> Float[Tensor, "N d"]:
    return states[to_device(places.row, states.device), to_device(places.place, states.device)]
