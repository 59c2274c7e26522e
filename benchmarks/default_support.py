"""How often the explorer opens with what was asked about: python benchmarks/default_support.py --scenes 100

Scenes of the world's test split are compressed for their first question and answered by the bundled demo model. Of
those whose answer is right, two shares are counted: the frame that the page opens with shows an object that the
question mentions; and, where it stands, most of the opened support's weight comes from frames that show it there.
Results are printed as JSON; a progress line goes to stderr after every scene.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from aviot import VideoLM
from aviot.explain.view import starting_pair
from aviot.scenes import Scene, render, tracks
from aviot_lab.world.world import World, WorldConfig

WEIGHTS = Path(__file__).parents[1] / "src" / "aviot" / "bundled" / "weights"
MOST = 0.5  # of the weight at the object's own positions


def shown_in(scene: Scene, subjects: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return [n,T] visibility, and [n,T,2] centres and [n,T] radii of objects as fractions of the picture."""
    found = tracks(scene)
    rows = list(subjects)
    inside = (found.x > 0) & (found.x < 1) & (found.y > 0) & (found.y < 1)
    return (found.visible & inside)[rows], np.stack((found.x, found.y), -1)[rows], found.size[rows]


def held_by_object(
    coefficients: torch.Tensor, grid: tuple[int, int], scene: Scene, subjects: tuple[int, ...], frame: int
) -> float:
    """Return the share of a support's weight [S,T], at the positions of an object in a frame, of frames showing it.

    Of several objects that the question mentions, the best one counts.
    """
    rows, columns = grid
    y, x = np.divmod(np.arange(rows * columns), columns)
    middle = np.stack(((x + 0.5) / columns, (y + 0.5) / rows), -1)
    visible, centre, size = shown_in(scene, subjects)
    best = 0.0
    for seen, at, radius in zip(visible, centre, size, strict=True):
        if not seen[frame]:
            continue
        covers = (np.linalg.norm(middle[:, None] - at[None], axis=-1) <= radius[None]) & seen[None]  # [S,T]
        here = covers[:, frame]
        if here.any():
            weights = coefficients[torch.from_numpy(here)].double().numpy()
            best = max(best, float((weights * covers[here]).sum() / weights.sum()))
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=100, help="number of scenes whose answer is right")
    parser.add_argument("--first", type=int, default=100, help="number of the first scene")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--ratio", type=float, default=4.0)
    options = parser.parse_args()
    lm = VideoLM.from_pretrained(WEIGHTS, device="cpu")
    world = World(WorldConfig(frames=(options.frames,)))
    asked = right = frames = positions = 0
    missed = []
    while right < options.scenes:
        number = options.first + asked
        asked += 1
        scene = world.scene("test", number)
        question = world.question(scene, 0)
        session = lm.open(render([scene]).frames[0].numpy(), source_fps=scene.fps)
        read = session.compress(question.text, budget=options.ratio)
        if session.answer(question.text, read, max_new_tokens=16).text.strip().lower() != question.answer:
            continue
        right += 1
        provenance = read.compression.provenance()
        support, frame = starting_pair(provenance.frames().cpu(), session.relevance(question.text))
        shows = bool(shown_in(scene, question.subjects)[0][:, frame].any())
        share = held_by_object(provenance.coefficients[support].cpu(), read.made.grid, scene, question.subjects, frame)
        frames += shows
        positions += share >= MOST
        if not shows or share < MOST:
            missed.append(number)
        line = {"asked": asked, "right": right, "frame": frames, "positions": positions, "missed": missed}
        print(json.dumps(line), file=sys.stderr, flush=True)
    print(json.dumps({"ratio": options.ratio, "frames": options.frames} | line))


if __name__ == "__main__":
    main()
