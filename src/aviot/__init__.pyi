from aviot.answers import Answer as Answer
from aviot.budget import AutoBudget as AutoBudget
from aviot.budget import Budget as Budget
from aviot.config import CompressorConfig as CompressorConfig
from aviot.methods.aviot import Compression as Compression
from aviot.methods.aviot import Compressor as Compressor
from aviot.methods.aviot import PositionEncoder as PositionEncoder
from aviot.methods.aviot import Provenance as Provenance
from aviot.methods.aviot import SegmentMean as SegmentMean
from aviot.methods.aviot import UniformKeep as UniformKeep
from aviot.session import VideoLM as VideoLM
from aviot.session import VideoSession as VideoSession
from aviot.streaming.session import StreamingSession as StreamingSession

__version__: str
