from aviot.compressor import Compression as Compression
from aviot.compressor import Compressor as Compressor
from aviot.compressor import PositionEncoder as PositionEncoder
from aviot.compressor import Provenance as Provenance
from aviot.compressor import SegmentMean as SegmentMean
from aviot.compressor import UniformKeep as UniformKeep
from aviot.config import CompressorConfig as CompressorConfig

__version__: str
