"""How far the question moves a compression: the supplement's distances, over the questions of a sheet."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aviot.methods.aviot import Compression
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence

PAIR = 2  # questions between which the supplement measures
TURNED = 3  # questions that a video needs for a rotation to be more than an exchange of two


DISTANCES = {"allocation": "allocation distance (0 to 2)", "temporal": "temporal divergence (bits)"}


@dataclass(frozen=True)
class Distance:
    """Between two compressions of a video: of the first stage's allocations, and in bits of their source times."""

    kind: str
    scene: int
    allocation: float
    temporal: float


def groups_of(scenes: Sequence[int]) -> list[list[int]]:
    """Rows about the same scene."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row, scene in enumerate(scenes):
        groups[scene].append(row)
    return list(groups.values())


def rotated(scenes: Sequence[int]) -> list[int]:
    """For each row the next about the same scene, and the first for the last: the row itself if it is alone."""
    turned = list(range(len(scenes)))
    for group in groups_of(scenes):
        for row, other in zip(group, group[1:] + group[:1], strict=True):
            turned[row] = other
    return turned


def distances(scenes: Sequence[int], told: Compression, untold: Compression) -> Iterator[Distance]:
    """Between the first two questions of a video under each condition, and between conditions of each question.

    `told` was compressed for every row's question, `untold` for none. A rotated compression is the one that the next
    question of the video has. With two questions a rotation would only exchange them: such videos are left out of the
    distances between questions, and videos with one question of those between a question and another.
    """
    budgets = {"told": [one[0] for one in told.budgets], "untold": [one[0] for one in untold.budgets]}
    times = {"told": told.provenance().frames().cpu(), "untold": untold.provenance().frames().cpu()}
    turned = rotated(scenes)

    def between(kind: str, first: tuple[str, int], second: tuple[str, int]) -> Distance:
        (one, a), (other, b) = first, second
        allocation = allocation_distance(budgets[one][a], budgets[other][b])
        return Distance(kind, scenes[a], allocation, temporal_divergence(times[one][a], times[other][b]))

    for group in groups_of(scenes):
        if len(group) >= TURNED:
            a, b = group[:PAIR]
            yield between("questions, matched", ("told", a), ("told", b))
            yield between("questions, rotated", ("told", turned[a]), ("told", turned[b]))
            yield between("questions, none", ("untold", a), ("untold", b))
        for row in group:
            if len(group) >= PAIR:
                yield between("matched to rotated", ("told", row), ("told", turned[row]))
            yield between("matched to none", ("told", row), ("untold", row))
