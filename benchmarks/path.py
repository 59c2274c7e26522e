"""Vision features to decoder tokens, without encoder and decoder. python benchmarks/path.py [--frames 224 --ratio 4]

One JSON line a method at the 7B's width (eager and replayed milliseconds: median and slowest minus fastest; whether the
two agree to the last bit; memory that the graph holds), and then the profiler's table of AVIOT's replay.
"""

import argparse
import json

import torch
from kernels import clock, table
from torch import nn

from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.connector import Connector
from aviot.backbones.llava_video.features_to_tokens import FeaturesToTokens
from aviot.bench.sizes import SIZES
from aviot.budget import Budget
from aviot.methods.aviot import Compressor, PositionEncoder
from aviot.methods.aviot.replay import Replays

SIZE = SIZES["7b"]
WIDTH = SIZE.text.width
METHODS = ("none", "uniform", "aviot")


class PathAlone(FeaturesToTokens, nn.Module):
    """What lies between encoder and decoder, with random weights."""

    def __init__(self) -> None:
        super().__init__()
        self.config = AviotConfig(
            vision_config=SIZE.vision_config(), text_config=SIZE.text_config(), compressor_config=SIZE.compressor
        )
        compressor = self.config.compressor
        self.position, self.compressor = PositionEncoder(compressor), Compressor(compressor)
        self.question_projection = nn.Linear(WIDTH, compressor.dim, bias=False)
        self.connector = Connector(compressor.dim, WIDTH, compressor.grid, self.config.pool_stride)
        self._replays = Replays()


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=224)
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    a = parser.parse_args()
    torch.manual_seed(0)
    path = PathAlone().to("cuda", torch.bfloat16).eval()
    config, asked = path.config.compressor, tuple(range(a.batch))
    u = torch.randn(a.batch, a.frames, config.patches, config.dim, device="cuda", dtype=torch.bfloat16)
    questions = torch.randn(a.batch, WIDTH, device="cuda", dtype=torch.bfloat16)
    for method in METHODS:

        def eager(method: str = method) -> torch.Tensor:
            return path._to_tokens(asked, Budget(ratio=a.ratio), path.method(method), u, questions).tokens

        def replayed(method: str = method) -> torch.Tensor:
            return path.video_tokens(u, questions, asked, budget=a.ratio, method=method).tokens

        row = {"method": method, "frames": a.frames, "batch": a.batch, "eager": clock(eager, a.repeats)}
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        row["replayed"] = clock(replayed, a.repeats)
        torch.cuda.empty_cache()
        row |= {"same": torch.equal(eager(), replayed()), "held_mib": (torch.cuda.memory_reserved() - before) // 2**20}
        print(json.dumps(row), flush=True)
    table(replayed)


if __name__ == "__main__":
    main()
