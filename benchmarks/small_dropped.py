"""How well a small model reads videos with tokens dropped at random.

python benchmarks/small_dropped.py CHECKPOINT [CHECKPOINT ...] [--scenes 16] [--frames 64] [--keeps 0.5 0.25 0.1 0.05]

Held-out questions of the validation split answered right, teacher forced: uncompressed, and with a share of the tokens
kept (`random-tokens`, separators included in the budget), with the paired difference to the first checkpoint.
"""

import argparse
import json
from pathlib import Path

import torch

from aviot import VideoLM
from aviot.evaluation.intervals import paired, wilson
from aviot_lab.demo_model.accuracy import accuracy
from aviot_lab.world import World, WorldConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--scenes", type=int, default=16)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--keeps", type=float, nargs="+", default=[0.5, 0.25, 0.1, 0.05])
    parser.add_argument("--videos", type=int, default=1, help="at once")
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16 on a CPU")
    parser.add_argument("-o", "--output", type=Path, help="file for the answers, which a later run can be paired with")
    parser.add_argument("--against", type=Path, help="answers of an earlier run on the same questions")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    settings = [("none", None), *(("random-tokens", 1 / keep) for keep in given.keeps)]
    first = json.loads(given.against.read_text()) if given.against else None
    for folder in given.checkpoints:
        backbone = VideoLM.from_pretrained(folder, device=given.device).backbone
        backbone.model.to(torch.float32 if given.device == "cpu" else torch.bfloat16)
        with torch.autocast(torch.device(given.device).type, torch.bfloat16, enabled=given.autocast):
            found = accuracy(
                backbone.model,
                backbone.tokenizer,
                World(WorldConfig()),
                split="validation",
                scenes=range(given.scenes),
                frames=given.frames,
                settings=settings,
                videos=given.videos,
            )
        right = [[good for family in sorted(found[setting]) for good in found[setting][family]] for setting in settings]
        first = first or right
        if given.output:
            given.output.write_text(json.dumps(right))
        print(folder, f"{given.frames} frames, {len(right[0])} questions", flush=True)
        for (name, ratio), mine, theirs in zip(settings, right, first, strict=True):
            low, high = wilson(sum(mine), len(mine))
            title = name if ratio is None else f"{name}, keep {100 / ratio:g} %"
            better = sum(a and not b for a, b in zip(mine, theirs, strict=True))
            worse = sum(b and not a for a, b in zip(mine, theirs, strict=True))
            apart = paired(better, worse, len(mine))
            print(
                f"  {title}: {100 * sum(mine) / len(mine):.1f} % [{100 * low:.1f}, {100 * high:.1f}]; "
                f"against the first {100 * (better - worse) / len(mine):+.1f} [{100 * apart[0]:+.1f}, "
                f"{100 * apart[1]:+.1f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
