"""Read the items of a configuration: a user's own, or those of a benchmark."""

from aviot.evaluation.benchmarks.benchmark import read_benchmark
from aviot.evaluation.benchmarks.definitions import BY_NAME
from aviot.evaluation.config import EvaluationConfig
from aviot.evaluation.grounding.files import GROUNDING, read_grounding
from aviot.evaluation.reading import Items, read_items


def read_questions(config: EvaluationConfig) -> Items:
    """Read and validate all items of a configuration; raise one ItemError that lists every invalid record."""
    if config.benchmark is None:
        return read_items(config.items, videos=config.videos, split=config.split)
    if config.benchmark in GROUNDING:
        return read_grounding(GROUNDING[config.benchmark], config.items, videos=config.videos)
    return read_benchmark(BY_NAME[config.benchmark], config.items)
