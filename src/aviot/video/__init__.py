"""Video in: the frames a model looks at, from files, folders of images and arrays. Knows nothing of models."""

from aviot.deferred import deferred_names

__getattr__, __dir__, __all__ = deferred_names(__name__, __file__)
