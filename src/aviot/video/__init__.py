"""Video in: the frames a model looks at, from files, folders of images and arrays. Knows nothing of models."""

from aviot.utils.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
