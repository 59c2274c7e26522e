"""AVIOT: video-token compression for language models by optimal transport."""

from typing import Any

from aviot.utils import moved
from aviot.utils.lazy_names import lazy_names

moved.install()

_attribute, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("aviot")
    return _attribute(name)
