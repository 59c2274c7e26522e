"""The small model as it learns: what every kind of lesson asks of it."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration
from aviot.models.path import CompressorName
from aviot.small.histories import HistoryReader, histories_at
from aviot.small.learning import answer, encode
from aviot.small.lessons import Lesson, Pictures
from aviot.small.naming import Naming, names_at
from aviot.small.options import OptionReader
from aviot.small.patches import PatchReader, patch_targets
from aviot.small.recall import ASKED_AFTER


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
        self.compressor = compressor

    def terms(self, lesson: Lesson | Pictures, step: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The terms of a lesson's loss, and what shares were right."""
        return self._patches(lesson) if isinstance(lesson, Pictures) else self._answers(lesson, step)

    def compile_layers(self) -> None:
        """Compile each kind of layer once, for sequences of any length."""
        path = self.model.model
        for layer in (*path.vision_tower.encoder.layers, *path.language_model.layers):
            layer.compile(dynamic=True)

    def keep_encoder(self) -> None:
        """Leave the encoder as it is from now on; on a GPU in the precision that it is used in."""
        tower = self.model.model.vision_tower.requires_grad_(False)
        if tower.device.type == "cuda":
            tower.to(torch.bfloat16)

    def _patches(self, lesson: Pictures) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        path = self.model.model
        features = encode(self.model, lesson.plans, len(lesson.objects.x))
        looks, place = patch_targets(lesson.objects, features.device)
        patches, right = self.reader.loss(features[:, 0], looks, place)
        cells = self._cells(path.project(path.prepare(features, relevance=False).x))
        seen = names_at(looks, place, path.connector.grid, self.model.config.pool_stride)
        return {"patches": patches, "naming": self.naming.loss(cells.flatten(1, 3), self._words, seen)}, {
            "right": right
        }

    def _answers(self, lesson: Lesson, step: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        with torch.no_grad():
            u = encode(self.model, lesson.plans, lesson.videos)
        found = answer(self.model, u, lesson, ratio=lesson.ratio, compressor=self.compressor, step=step)
        terms = {"language": found.language, "transport": self.model.config.transport_loss_weight * found.transport}
        if lesson.ratio is None:
            means = self._cells(found.tokens).mean((2, 3))
            terms["naming"] = self.naming.loss(means, self._words, lesson.seen.to(u.device))
        shares = {"right": found.right.float().mean()}
        if found.told is not None and lesson.histories is not None:
            grid, stride = self.model.model.connector.grid, self.model.config.pool_stride
            goal = histories_at(lesson.histories, grid, stride, u.device).flatten(0, 1)[:, None]
            terms["told"], shares["told_right"] = self.history_reader.loss(self._cells(found.told).flatten(0, 3), goal)
        if found.recalled is not None and lesson.recalls is not None:
            goal = lesson.recalls.histories.to(u.device).long()
            terms["recalled"], shares["recalled_right"] = self.recall_reader.loss(found.recalled, goal)
        if found.chosen is not None and lesson.options is not None:
            goal = lesson.options.right.to(u.device)
            terms["chosen"], shares["chosen_right"] = self.option_reader.loss(found.chosen, goal)
        return terms, shares

    @property
    def _words(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def _cells(self, tokens: Tensor) -> Tensor:
        """The decoder's tokens of videos by frame, row and column, without the rows' separators."""
        rows, columns = self.model.model.connector.pooled
        return tokens.unflatten(1, (-1, rows, columns + 1))[..., :-1, :]
