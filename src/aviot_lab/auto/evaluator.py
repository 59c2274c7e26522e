"""Batches of questions answered at every ratio: right or not, how probable the answer is, and the tokens read."""

from collections.abc import Callable

import torch

from aviot.session import VideoLM
from aviot_lab.auto.decoding import Decoded, decode
from aviot_lab.auto.size import AutoSize, key_of
from aviot_lab.demo_model.accuracy import QuestionBatch
from aviot_lab.demo_model.learning import compressed_prompts, encode
from aviot_lab.reproduce.journaling import Record

DIGITS = 6  # decimals of a probability in the journal

OnRatio = Callable[[int, int], None]  # the ratio that is answered next, counted from 1, and their number


class RatioEvaluator:
    """A model that answers at every ratio; `on_ratio` is called before each."""

    def __init__(self, lm: VideoLM, size: AutoSize, on_ratio: OnRatio = lambda ratio, ratios: None) -> None:
        self.model, self.tokenizer = lm.backbone.model, lm.backbone.tokenizer
        self.size, self.on_ratio = size, on_ratio

    @torch.no_grad()
    def answer(self, batch: QuestionBatch) -> Record:
        """Return a batch's right answers, texts, probabilities and tokens by ratio; videos are encoded once."""
        features = encode(self.model, batch.conversations.plans, batch.conversations.videos)
        record: Record = {
            "scenes": [scene.index for scene, _ in batch.asked],
            "families": [question.family for question in batch.questions],
        }
        record |= {name: {} for name in ("right", "said", "probability", "tokens")}
        for number, ratio in enumerate(self.size.ratios, start=1):
            self.on_ratio(number, len(self.size.ratios))
            ready = compressed_prompts(self.model, features, batch.conversations, ratio=None if ratio == 1 else ratio)
            if ready.compression is not None:
                ready.compression.check()
            found = decode(self.model, ready.sequences, batch.conversations, self.tokenizer)
            record["tokens"][key_of(ratio)] = ready.sequences.tokens.shape[1]
            _add(record, key_of(ratio), found)
        return record


def _add(record: Record, key: str, found: list[Decoded]) -> None:
    record["right"][key] = [float(one.right) for one in found]
    record["said"][key] = [one.answer.text for one in found]
    record["probability"][key] = [round(one.answer.probability or 0.0, DIGITS) for one in found]
