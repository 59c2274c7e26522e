"""Time to the first token of a 7B video language model with random weights. python benchmarks/answer.py [--layers 28]

One JSON line a row: frames, ratio (null: uncompressed), visual tokens, and medians in milliseconds of encoding,
compression (positions, relevance, compression, projection, pooling) and prefill, and their sum. Needs a GPU with
40 GB or more for the uncompressed 224 frames.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from aviot.models.configuration import AviotConfig
from aviot.models.modeling import AviotForConditionalGeneration
from aviot.models.path import CompressorName
from aviot.models.sequence import positions_of

VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
    "vision_use_head": False,
}
TEXT = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 65536,
}
PROMPT = 60  # tokens around the video


def timed(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--frames", type=int, nargs="+", default=[64, 224])
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        config = AviotConfig(vision_config=VISION, text_config=TEXT | {"num_hidden_layers": a.layers})
        model = AviotForConditionalGeneration(config).eval()
    torch.set_default_dtype(torch.float32)
    for frames in a.frames:
        pixels = torch.rand(frames, 3, 384, 384, device="cuda", dtype=torch.bfloat16) * 2 - 1
        encode = timed(lambda pixels=pixels, frames=frames: model.encode(pixels, [frames]), a.repeats)
        encoded = model.encode(pixels, [frames])
        ids = torch.randint(0, 1000, (1, PROMPT), device="cuda")
        ids[0, 20] = config.video_token_id
        span = torch.tensor([[30, 50]], device="cuda")
        for ratio in (None, 2.0, 4.0, 10.0):
            name: CompressorName = "none" if ratio is None else "aviot"

            def merge(name=name, ratio=ratio, ids=ids, span=span, encoded=encoded):
                return model.merge_prompts(
                    ids, encoded=encoded, question_span=span, ratio=ratio or 2.0, compressor=name, record=False
                )[0]

            torch.cuda.reset_peak_memory_stats()
            merged = merge()
            positions = positions_of(merged.attention_mask)

            def prefill(merged=merged, positions=positions):
                return model(inputs_embeds=merged.embeds, position_ids=positions, logits_to_keep=1)

            compress, read = timed(merge, a.repeats), timed(prefill, a.repeats)
            row = {"frames": frames, "ratio": ratio, "tokens": merged.embeds.shape[1] - PROMPT + 1}
            row |= {"encode": encode, "compress": compress, "prefill": read, "first_token": encode + compress + read}
            row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            print(json.dumps({k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
