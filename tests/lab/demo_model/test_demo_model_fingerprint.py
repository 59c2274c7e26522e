"""The data's fingerprint is the same wherever it is worked out, and another for other data."""

from dataclasses import replace

from aviot_lab.demo_model import batches as batches_module
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.fingerprint import data_fingerprint
from aviot_lab.demo_model.tokenizer import build_tokenizer
from aviot_lab.world import story

PHASES = (
    Phase("patches", steps=3, batches=((2, 2),), rates=(1e-3, 1e-3)),
    Phase("whole", steps=5, batches=((2, 16),), rates=(1e-3, 1e-4)),
    Phase("compressed", steps=5, batches=((2, 16), (2, 32)), rates=(1e-4, 0.0)),
)


def test_the_same_data_have_one_fingerprint_and_others_another(monkeypatch, tokenizer):
    curriculum = Curriculum(PHASES)
    found = data_fingerprint(curriculum, tokenizer)
    assert len(found) == 64
    assert data_fingerprint(Curriculum(PHASES), build_tokenizer()) == found
    others = {
        data_fingerprint(replace(curriculum, seed=1), tokenizer),
        data_fingerprint(Curriculum((*PHASES[:2], replace(PHASES[2], steps=3))), tokenizer),
    }
    changes = [
        (batches_module, "DESCRIBED_OBJECTS", 1),  # what is said of a video
        (batches_module, "UNCOMPRESSED_SHARE", 1.0),  # whether it is compressed
        (batches_module, "sample_ratio", lambda generator: 10.0),
        (batches_module, "question_frames", lambda *given: None),  # a task that is left out
        (batches_module, "histories_of", lambda *given: None),
        (story, "TILT", 0.2),  # what is drawn
    ]
    for module, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            others.add(data_fingerprint(curriculum, tokenizer))
    assert len(others | {found}) == 1 + 2 + len(changes)
