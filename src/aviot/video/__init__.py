"""Video input: sampled frames and their times, from files, folders of images and arrays. Independent of any model."""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
