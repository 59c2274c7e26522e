"""The paper's method on features: positions, transport, fusion, provenance, objective; without a language model."""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
