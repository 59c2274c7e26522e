from aviot.config import CompressorConfig as CompressorConfig
from aviot.methods.aviot import Compression as Compression
from aviot.methods.aviot import Compressor as Compressor
from aviot.methods.aviot import PositionEncoder as PositionEncoder
from aviot.methods.aviot import Provenance as Provenance
from aviot.methods.aviot import SegmentMean as SegmentMean
from aviot.methods.aviot import UniformKeep as UniformKeep

__version__: str
