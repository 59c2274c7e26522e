"""What other people's code holds on to."""

import inspect
import subprocess
import sys

import aviot
from aviot import Compressor, UniformKeep


def test_public_names():
    assert sorted(aviot.__all__) == [
        "Answer",
        "AutoBudget",
        "Budget",
        "Compression",
        "Compressor",
        "CompressorConfig",
        "PositionEncoder",
        "Provenance",
        "SegmentMean",
        "StreamingSession",
        "UniformKeep",
        "VideoLM",
        "VideoSession",
    ]
    assert all(hasattr(aviot, name) for name in aviot.__all__)


def test_call_signatures():
    names = ["self", "x", "question", "relevance", "motion", "ratio", "supports", "step"]
    assert list(inspect.signature(Compressor.forward).parameters) == names
    assert list(inspect.signature(UniformKeep.forward).parameters) == names


def test_importing_stays_light():
    heavy = "{'transformers', 'av', 'matplotlib', 'ot', 'typer', 'triton'}"
    code = f"import sys, aviot; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
