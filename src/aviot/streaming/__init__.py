"""Video without an end: frames pushed as they arrive, a memory of constant size, and questions at any moment."""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
