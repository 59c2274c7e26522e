"""On a GPU, the host never waits while the small model learns: it queues the next step while the last one runs."""

import pytest
import torch
from torch import nn

from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.batches import ConversationBatch, TrainingBatches
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.optimizers import optimizers_of
from aviot_lab.demo_model.training_model import TrainingModel

pytestmark = pytest.mark.gpu

RATES = (1e-3, 1e-3)
CURRICULUM = Curriculum(
    (
        Phase("patches", 1, ((2, 2),), RATES),
        Phase("pictures", 1, ((2, 2),), RATES),
        Phase("whole", 1, ((2, 16),), RATES),
        Phase("compressed", 8, ((3, 16),), RATES),
    )
)


@pytest.mark.parametrize("compressor", ["aviot", "uniform", "segment-mean"])
def test_no_step_waits(tokenizer, compressor):
    training_model = TrainingModel(new_model(tokenizer, 0), tokenizer, compressor).cuda()
    optimizers = optimizers_of(training_model)
    batches = TrainingBatches(CURRICULUM, tokenizer)
    ratios = set()
    for number in range(CURRICULUM.steps):
        batch = batches[number]
        if CURRICULUM.at(number)[0].task != "patches":
            training_model.freeze_encoder()
        for mode in ("default", "error"):  # the first time, kernels are compiled and moments made
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode(mode)
            try:
                with torch.autocast("cuda", torch.bfloat16):
                    terms, _ = training_model.losses(batch)
                torch.stack(list(terms.values())).sum().backward()
                nn.utils.clip_grad_norm_(training_model.parameters(), 1.0)
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        if isinstance(batch, ConversationBatch):
            ratios.add(batch.ratio)
    assert None in ratios
    assert len(ratios) > 1
