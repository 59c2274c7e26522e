"""The renderer of the bundled demo model's world, and a few stored scenes; `aviot_lab.world` makes more."""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
