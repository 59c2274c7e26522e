"""The paper's method on features: positions, transport, fusion, provenance, objective. Knows no language model."""

from aviot.compressor.baselines import RandomDrop, SegmentMean, UniformKeep
from aviot.compressor.compressor import Compressor
from aviot.compressor.objective import ObjectiveTerms
from aviot.compressor.position import PositionEncoder
from aviot.compressor.provenance import Provenance
from aviot.compressor.result import Compression

__all__ = [
    "Compression",
    "Compressor",
    "ObjectiveTerms",
    "PositionEncoder",
    "Provenance",
    "RandomDrop",
    "SegmentMean",
    "UniformKeep",
]
