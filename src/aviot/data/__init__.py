"""Training data: records are indexed, checked, ordered, loaded and batched. Independent of any model.

An example is determined by the configuration and its position: its number, counted from the start of the run over all
epochs and ranks. Nothing is replayed to resume a run.
"""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
