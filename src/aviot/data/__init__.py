"""Training data: records found and checked, put in order, loaded and batched. Knows nothing of models.

What an example is follows from the configuration and its position alone: its number, counted from the run's first over
all epochs and ranks. Nothing is replayed to continue a run.
"""

from aviot.data.batches import BatchLayout, StepBatches
from aviot.data.collate import Batch, Collate, keep_features, model_inputs
from aviot.data.config import DataConfig
from aviot.data.corpus import Corpus
from aviot.data.cost import CostModel
from aviot.data.dataset import CachedFeatures, Clip, Example, Processor, VideoDataset
from aviot.data.errors import DataError
from aviot.data.failures import Failure, FailureTally
from aviot.data.feature_cache import EncodedVideo, FeatureCache
from aviot.data.feature_key import FeatureKeys, fingerprint
from aviot.data.order import Order
from aviot.data.record import Record

__all__ = [
    "Batch",
    "BatchLayout",
    "CachedFeatures",
    "Clip",
    "Collate",
    "Corpus",
    "CostModel",
    "DataConfig",
    "DataError",
    "EncodedVideo",
    "Example",
    "Failure",
    "FailureTally",
    "FeatureCache",
    "FeatureKeys",
    "Order",
    "Processor",
    "Record",
    "StepBatches",
    "VideoDataset",
    "fingerprint",
    "keep_features",
    "model_inputs",
]
