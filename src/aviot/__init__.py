"""AVIOT: a video's frames, transported onto fewer."""

from aviot.compressor import Compression, Compressor, PositionEncoder, Provenance, SegmentMean, UniformKeep
from aviot.config import CompressorConfig

__all__ = [
    "Compression",
    "Compressor",
    "CompressorConfig",
    "PositionEncoder",
    "Provenance",
    "SegmentMean",
    "UniformKeep",
]
