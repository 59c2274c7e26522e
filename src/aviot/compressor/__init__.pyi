from aviot.compressor.baselines import RandomDrop as RandomDrop
from aviot.compressor.baselines import SegmentMean as SegmentMean
from aviot.compressor.baselines import UniformKeep as UniformKeep
from aviot.compressor.compressor import Compressor as Compressor
from aviot.compressor.objective import ObjectiveTerms as ObjectiveTerms
from aviot.compressor.position import PositionEncoder as PositionEncoder
from aviot.compressor.provenance import Provenance as Provenance
from aviot.compressor.result import Compression as Compression
