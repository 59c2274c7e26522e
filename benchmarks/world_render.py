"""How fast the world is drawn: scenes and questions on the host, frames on a device.

PYTHONPATH=src python benchmarks/world_render.py --device cuda --batch 64 --batches 8
"""

import argparse
import time

import torch

from aviot_lab.world import World, WorldConfig, render


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--frames", type=int, default=64)
    options = parser.parse_args()
    world = World(WorldConfig())
    render([world.scene("train", 0, options.frames)], options.device)  # tables are made once
    drawn, pixels = 0.0, 0.0
    for number in range(options.batches):
        start = now(options.device)
        scenes = [world.scene("train", number * options.batch + i, options.frames) for i in range(options.batch)]
        for scene in scenes:
            world.questions(scene)
        middle = now(options.device)
        render(scenes, options.device)
        drawn, pixels = drawn + middle - start, pixels + now(options.device) - middle
    videos = options.batch * options.batches
    print(f"{videos} videos of {options.frames} frames on {options.device}, torch {torch.__version__}")
    print(f"scene and questions {1000 * drawn / videos:.2f} ms, frames {1000 * pixels / videos:.2f} ms a video")
    print(f"{60 * videos / (drawn + pixels):.0f} videos a minute")


def now(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
