from aviot.methods.aviot.baselines import RandomDrop as RandomDrop
from aviot.methods.aviot.baselines import SegmentMean as SegmentMean
from aviot.methods.aviot.baselines import UniformKeep as UniformKeep
from aviot.methods.aviot.compressor import Compressor as Compressor
from aviot.methods.aviot.objective import ObjectiveTerms as ObjectiveTerms
from aviot.methods.aviot.position import PositionEncoder as PositionEncoder
from aviot.methods.aviot.provenance import Provenance as Provenance
from aviot.methods.aviot.result import Compression as Compression
