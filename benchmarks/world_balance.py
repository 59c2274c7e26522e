"""Whether the world's questions are answerable without the video or from one frame, family by family.

PYTHONPATH=src python benchmarks/world_balance.py --questions 4000 --json balance.json
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from aviot.scenes.draws import Draws
from aviot_lab.world import FAMILIES, Question, Scene, World, WorldConfig
from aviot_lab.world.balance import Score, frame_features, held_out_score, word_features

LOOKS: dict[str, Callable[[Scene, Question, Draws], int]] = {  # which frame a learner is shown
    "random frame": lambda scene, question, draws: draws.below(scene.frames),
    "first frame": lambda scene, question, draws: 0,
    "middle frame": lambda scene, question, draws: scene.frames // 2,
    "last frame": lambda scene, question, draws: scene.frames - 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=4000, help="a family, half of them to learn from")
    parser.add_argument("--split", default="train")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {}
    for family in options.families:
        start = time.perf_counter()
        world = World(WorldConfig(families=(family, *(f for f in FAMILIES if f != family)), seed=options.seed))
        scenes = [world.scene(options.split, i * len(FAMILIES), options.frames) for i in range(options.questions)]
        questions = [world.question(scene) for scene in scenes]
        found[family] = {name: vars(score) for name, score in scores(scenes, questions).items()}
        cells = [f"{name} {v['right'] / v['asked']:.3f} ({v['chance']:.3f})" for name, v in found[family].items()]
        mark = "temporal" if FAMILIES[family].temporal else "        "
        print(f"{family:11} {mark} " + "  ".join(cells) + f"  {time.perf_counter() - start:.0f} s", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "families": found}, file, indent=1)


def scores(scenes: list[Scene], questions: list[Question]) -> dict[str, Score]:
    words = word_features([q.text for q in questions])
    lettered = word_features([q.multiple_choice.replace("\n", " ") for q in questions])
    result = {"blind": held_out_score(words, questions), "letter": held_out_score(lettered, questions, letters=True)}
    looks = LOOKS if questions[0].temporal else LOOKS | {"evidence": evidence}
    for name, choose in looks.items():
        draws = Draws(name)
        pairs = zip(scenes, questions, strict=True)
        rows = np.stack([frame_features(s, q, choose(s, q, draws)) for s, q in pairs])
        result[name] = held_out_score(np.concatenate([rows, words], axis=1), questions)
    return result


def evidence(scene: Scene, question: Question, draws: Draws) -> int:
    """The frame to look at: a control, that the learner learns where there is something to see."""
    shown = question.evidence[0] if question.evidence else None
    return draws.below(scene.frames) if shown is None else (shown.start + shown.stop - 1) // 2


if __name__ == "__main__":
    main()
