"""How much is measured: all of it on a GPU, or a little of everything on two CPU cores."""

import math
from dataclasses import dataclass, replace

FEWEST_FULL = 2000  # questions that figures are published with
MOST = 100_000  # for scenes are counted before the first is asked about


@dataclass(frozen=True, kw_only=True)
class Size:
    """Questions, frames and ratios of a run."""

    questions: int  # at least; scenes are taken whole
    frames: int  # of the videos of all experiments but one
    ratios: tuple[float, ...]  # of the controlled table
    ablation_ratios: tuple[float, ...]  # of the component ablation and of the two pilots
    curve: tuple[float, ...]  # of short and of long videos; training saw 2 to 10
    ratio: float  # where one has to do
    long_questions: int
    long_frames: int  # of the videos that are read whole or sampled
    sampled: int  # frames that are left of them
    long_ratios: tuple[float, ...]  # at which both are compared; in the curve
    videos: int  # at a time
    long_videos: int

    @property
    def level_ratio(self) -> float:
        """The ratio that leaves of a whole long video as many supports as `ratio` of a sampled one."""
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
    """The size of that name, with another number of questions where one is given.

    Those about long videos are in proportion; in the full setting never fewer than figures are published with.
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
