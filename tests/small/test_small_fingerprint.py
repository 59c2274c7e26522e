"""The data's fingerprint is the same wherever it is worked out, and another for other data."""

from dataclasses import replace

from aviot.small import lessons as lessons_module
from aviot.small.curriculum import Curriculum, Phase
from aviot.small.fingerprint import data_fingerprint
from aviot.small.tokenizer import build_tokenizer
from aviot.synthetic import story

PHASES = (
    Phase("patches", steps=3, videos=2, frames=(2,), rates=(1e-3, 1e-3)),
    Phase("whole", steps=5, videos=2, frames=(16,), rates=(1e-3, 1e-4)),
    Phase("compressed", steps=2, videos=2, frames=(16, 32), rates=(1e-4, 0.0)),
)


def test_the_same_data_have_one_fingerprint_and_others_another(monkeypatch):
    tokenizer, curriculum = build_tokenizer(), Curriculum(PHASES)
    found = data_fingerprint(curriculum, tokenizer)
    assert len(found) == 64
    assert data_fingerprint(Curriculum(PHASES), build_tokenizer()) == found
    others = {
        data_fingerprint(replace(curriculum, seed=1), tokenizer),
        data_fingerprint(Curriculum((*PHASES[:2], replace(PHASES[2], steps=3))), tokenizer),
    }
    monkeypatch.setattr(lessons_module, "DESCRIBED", 1)  # what is said of a video
    others.add(data_fingerprint(curriculum, tokenizer))
    monkeypatch.undo()
    monkeypatch.setattr(story, "TILT", 0.2)  # what is drawn
    others.add(data_fingerprint(curriculum, tokenizer))
    assert len(others | {found}) == 5
