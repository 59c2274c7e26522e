"""Sizes of a run: the full one for a GPU, a small one for two CPU cores."""

import math
from dataclasses import dataclass, replace

FEWEST_FULL = 2000  # least questions of published figures
MOST = 100_000  # questions: scenes are counted before the first is asked about


@dataclass(frozen=True, kw_only=True)
class Size:
    """Questions, frames and ratios of a run."""

    questions: int  # at least; scenes are taken whole
    frames: int  # of short videos
    ratios: tuple[float, ...]  # of the controlled table
    ablation_ratios: tuple[float, ...]  # of the component ablation and of the two pilots
    curve: tuple[float, ...]  # of short and of long videos; training saw 2 to 10
    ratio: float  # of experiments with a single ratio
    long_questions: int
    long_frames: int  # of long videos, all read or sampled
    sampled: int  # frames sampled from a long video
    long_ratios: tuple[float, ...]  # at which both are compared; in the curve
    videos: int  # per batch
    long_videos: int

    @property
    def level_ratio(self) -> float:
        """The ratio at which a whole long video has as many supports as a sampled one at `ratio`."""
        return self.ratio * self.long_frames / self.sampled


SIZES: dict[str, Size] = {
    "full": Size(
        questions=2 * FEWEST_FULL,  # intervals of rows near 90 % are less than two points wide
        frames=64,
        ratios=(2.0, 4.0, 10.0),
        ablation_ratios=(2.0, 4.0, 10.0),
        curve=(2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 20.0),  # at 16, 64 frames would leave as many supports as at 20
        ratio=4.0,
        long_questions=FEWEST_FULL,
        long_frames=224,
        sampled=64,
        long_ratios=(2.0, 4.0, 10.0),
        videos=16,
        long_videos=8,
    ),
    "small": Size(
        questions=30,
        frames=64,
        ratios=(2.0, 4.0, 10.0),
        ablation_ratios=(4.0,),
        curve=(2.0, 4.0, 10.0, 20.0),
        ratio=4.0,
        long_questions=6,
        long_frames=224,
        sampled=64,
        long_ratios=(4.0,),
        videos=2,
        long_videos=1,
    ),
}


def size_named(name: str, questions: int | None) -> Size:
    """Return the size of that name, with another number of questions if one is given.

    The number of questions about long videos is in proportion; in the full setting at least `FEWEST_FULL`.
    """
    if name not in SIZES:
        raise ValueError(f"setting must be one of {', '.join(SIZES)}, got {name!r}")
    size = SIZES[name]
    if questions is None:
        return size
    least = FEWEST_FULL if name == "full" else 1
    if not least <= questions <= MOST:
        raise ValueError(f"questions must be {least} to {MOST} in the {name} setting, got {questions}")
    long = max(least, math.ceil(questions * size.long_questions / size.questions))
    return replace(size, questions=questions, long_questions=long)
