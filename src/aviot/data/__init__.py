"""Training data: records found and checked, put in order, loaded and batched. Knows nothing of models.

What an example is follows from the configuration and its position alone: its number, counted from the run's first over
all epochs and ranks. Nothing is replayed to continue a run.
"""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
