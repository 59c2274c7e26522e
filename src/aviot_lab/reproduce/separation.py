"""Effect of the question on a compression: the supplement's distances, over the questions of a batch."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aviot.methods.aviot import Compression
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence

PAIR = 2  # questions between which the supplement measures
ROTATED = 3  # least questions of a video for which a rotation is more than an exchange of two

DISTANCES = {"allocation": "allocation distance (0 to 2)", "temporal": "temporal divergence (bits)"}


@dataclass(frozen=True)
class Distance:
    """Distances between two compressions of a video: of the first stage's budgets, and of source times in bits."""

    kind: str
    scene: int
    allocation: float
    temporal: float


def groups_of(scenes: Sequence[int]) -> list[list[int]]:
    """Return the indices of questions about the same scene, scene by scene."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row, scene in enumerate(scenes):
        groups[scene].append(row)
    return list(groups.values())


def rotated(scenes: Sequence[int]) -> list[int]:
    """Return for each question the next about the same scene, the first for the last; itself if it is the only one."""
    rotation = list(range(len(scenes)))
    for group in groups_of(scenes):
        for row, other in zip(group, group[1:] + group[:1], strict=True):
            rotation[row] = other
    return rotation


def distances(scenes: Sequence[int], matched: Compression, without: Compression) -> Iterator[Distance]:
    """Yield distances between a video's first two questions per conditioning, and between conditionings per question.

    `matched` was compressed for every question, `without` for none; the rotated compression of a question is the
    matched one of the video's next question. With two questions a rotation would only exchange them: such videos are
    left out of the distances between questions, and videos with one question out of those between two.
    """
    budgets = {"matched": [one[0] for one in matched.budgets], "none": [one[0] for one in without.budgets]}
    times = {"matched": matched.provenance().frames().cpu(), "none": without.provenance().frames().cpu()}
    rotation = rotated(scenes)

    def between(kind: str, first: tuple[str, int], second: tuple[str, int]) -> Distance:
        (one, a), (other, b) = first, second
        allocation = allocation_distance(budgets[one][a], budgets[other][b])
        return Distance(kind, scenes[a], allocation, temporal_divergence(times[one][a], times[other][b]))

    for group in groups_of(scenes):
        if len(group) >= ROTATED:
            a, b = group[:PAIR]
            yield between("questions, matched", ("matched", a), ("matched", b))
            yield between("questions, rotated", ("matched", rotation[a]), ("matched", rotation[b]))
            yield between("questions, none", ("none", a), ("none", b))
        for row in group:
            if len(group) >= PAIR:
                yield between("matched to rotated", ("matched", row), ("matched", rotation[row]))
            yield between("matched to none", ("matched", row), ("none", row))
