"""YAML in which a key that is said twice is a mistake, not the last word."""

from functools import cache
from typing import Any


@cache
def unique_keys_loader() -> Any:
    """A safe loader that refuses a key said twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) != len(node.value):
                line = node.start_mark.line + 1
                raise yaml.constructor.ConstructorError(None, None, f"a key is there twice below line {line}", None)
            return mapping

    return Loader
