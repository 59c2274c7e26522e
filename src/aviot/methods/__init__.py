"""Methods that turn encoded video into fewer tokens, under one interface, and their registry."""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
