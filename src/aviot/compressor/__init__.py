"""The paper's method on features: positions, transport, fusion, provenance, objective. Knows no language model."""

from aviot.deferred import deferred_names

__getattr__, __dir__, __all__ = deferred_names(__name__, __file__)
