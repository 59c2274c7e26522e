"""The families of questions: how a plot of each is made, and whether it takes more than one frame to answer."""

from collections.abc import Callable
from dataclasses import dataclass

from aviot_lab.world import changes, looks, motion
from aviot_lab.world.stage import Stage
from aviot_lab.world.story import Story


@dataclass(frozen=True)
class Family:
    """`temporal` claims that no single frame helps, which the world's tests hold it to."""

    build: Callable[[Stage], Story]
    temporal: bool


FAMILIES: dict[str, Family] = {
    "existence": Family(looks.existence, temporal=False),
    "colour": Family(looks.colour, temporal=False),
    "shape": Family(looks.shape, temporal=False),
    "where": Family(looks.where, temporal=False),
    "brief": Family(looks.brief, temporal=False),
    "touched": Family(looks.touched, temporal=False),
    "passing": Family(looks.passing, temporal=False),
    "count": Family(changes.count, temporal=True),
    "repetition": Family(changes.repetition, temporal=True),
    "changed": Family(changes.changed, temporal=True),
    "became": Family(changes.became, temporal=True),
    "when": Family(changes.when, temporal=True),
    "order": Family(changes.order, temporal=True),
    "neighbour": Family(changes.neighbour, temporal=True),
    "distant": Family(changes.distant, temporal=True),
    "direction": Family(motion.direction, temporal=True),
    "turning": Family(motion.turning, temporal=True),
    "following": Family(motion.following, temporal=True),
    "swap": Family(motion.swap, temporal=True),
}
