"""Where a training run's supports go, and what else could be done with them.

python benchmarks/small_allocation.py RUN [--scenes 256] [--frames 64] [--ratios 4 10 20]

Held-out questions answered right by the baselines and by AVIOT with its own allocation, at other temperatures, by an
unbalanced pilot, without relevance and by relevance that knows which frames show whom a question is about; and how much
more of whom it is about the most favoured segment shows than the mean one. Teacher forced, on validation scenes.
"""

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch

from aviot.methods.aviot.method import AviotMethod
from aviot_lab.demo_model.accuracy import question_batches
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.demo_model.networks import configure
from aviot_lab.demo_model.relevance import question_frames
from aviot_lab.demo_model.state import load_compressor, load_weights
from aviot_lab.demo_model.tokenizer import tokenizer_of
from aviot_lab.world import World, WorldConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--scenes", type=int, default=256)
    parser.add_argument("--videos", type=int, default=16, help="at once")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--ratios", type=float, nargs="+", default=[4.0, 10.0, 20.0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    device = torch.device(given.device)
    tokenizer = tokenizer_of(given.run)
    model = new_model(tokenizer, 0).eval()
    load_weights(given.run, model, "model.")
    configure(model, load_compressor(given.run), {})
    model = model.to(device)
    compressor, inputs = model.model.compressor, AviotMethod._question_inputs
    config = compressor.config

    def at(temperature):
        return replace(config, allocation=replace(config.allocation, final_temperature=temperature))

    variants = {
        "own": (config, False),
        "temperature 0.2": (at(0.2), False),
        "temperature 0.4": (at(0.4), False),
        "temperature 1": (at(1.0), False),
        "unbalanced pilot": (replace(config, pilot="unbalanced"), False),
        "no relevance": (replace(config, question_allocation=False), False),
        "no question in the cost": (replace(config, question_cost=False), False),
        "true relevance": (config, True),
        "true relevance, 0.4": (at(0.4), True),
    }
    right, gains = defaultdict(list), []
    world = World(WorldConfig())
    batches = question_batches(
        BatchWriter(tokenizer), world, "validation", range(given.scenes), given.frames, given.videos
    )
    for batch in batches:
        asked = [(scene, [question]) for (scene, _), question in zip(batch.asked, batch.questions, strict=True)]
        asked_frames = question_frames(batch.conversations.question_mask, batch.conversations.video, asked)
        assert asked_frames is not None, "take more videos at once: nothing these are asked about is there"
        true = torch.ones(len(asked), given.frames, device=device)
        true[asked_frames.row.to(device)] = asked_frames.shown.to(device, torch.float32)

        def true_relevance(method, video, question_mean, true=true):
            return inputs(method, video, question_mean) | {"relevance": true}

        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            u = encode(model, batch.conversations.plans, batch.conversations.videos)
            right["none", None] += answer(model, u, batch.conversations, ratio=None).right.tolist()
            for ratio in given.ratios:
                for name in ("uniform", "segment-mean"):
                    found = answer(model, u, batch.conversations, ratio=ratio, compressor=name)
                    right[name, ratio] += found.right.tolist()
                for name, (changed, knows) in variants.items():
                    compressor.config, AviotMethod._question_inputs = changed, true_relevance if knows else inputs
                    found = answer(model, u, batch.conversations, ratio=ratio)
                    right[f"aviot, {name}", ratio] += found.right.tolist()
                    if name == "own" and ratio == given.ratios[0]:
                        first = torch.tensor([budgets[0] for budgets in found.compression.budgets])[asked_frames.row]
                        parts = asked_frames.shown.float().tensor_split(first.shape[1], 1)
                        seen = torch.stack([part.mean(1) for part in parts], 1)
                        best = seen.gather(1, first.argmax(1, keepdim=True))[:, 0]
                        gains.append(torch.stack((best - seen.mean(1), seen.amax(1) - seen.mean(1))))
    for (name, ratio), answers in right.items():
        print(f"{name:32} {'' if ratio is None else f'{ratio:g}':4} {sum(answers) / len(answers):6.1%}")
    gain, most = torch.cat(gains, 1).mean(1).tolist()
    print(f"{len(right['none', None])} questions; the favoured segment shows {gain:.3f} more, at best {most:.3f}")


if __name__ == "__main__":
    main()
