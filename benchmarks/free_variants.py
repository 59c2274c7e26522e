"""Compare methods on projected tokens, question by question, on validation scenes of the world.

python benchmarks/free_variants.py prepare CACHE [--model FOLDER] [--videos 100] [--frames 64]
python benchmarks/free_variants.py run CACHE NAME [NAME ...] [--keep 0.25 0.15 0.1] [--against NAME]
python benchmarks/free_variants.py table CACHE [--against NAME]
python benchmarks/free_variants.py coverage CACHE NAME [NAME ...] [--keep 0.1 0.05 0.025]

`prepare` draws and encodes each video once and writes its projected tokens, the encoder's attention and its questions.
`run` answers every question with every method, teacher forced: a row is right exactly if greedy decoding would generate
its answer. A NAME is a method of the registry, `random-tokens`, or `MODULE:EXPRESSION`, Python that makes a method.
Answers are appended to CACHE/answers.jsonl; what is there is not asked again. `table` prints the share of right answers
and the mean paired difference from one method with its 95 % interval (bootstrap over videos).

`coverage` asks nothing: it prints how often the objects that a question is about have a kept token in a frame that
shows them, and the share of all their tokens that are kept (of merged tokens the source with the largest weight).
Methods that read tokens before pooling are not served.
"""

import argparse
import json
import time
from collections import defaultdict
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import torch

from aviot import Budget, VideoLM, methods
from aviot.backbones.llava_video.features_to_tokens import STRUCTURE
from aviot.backbones.llava_video.prompt import question_range
from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.backbones.questions import question_tokens
from aviot.bundled import embedded_model
from aviot.methods import Compressed, TokenMethod, VideoFeatures
from aviot.video import Video
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.masks import question_means
from aviot_lab.world import World, WorldConfig, draw, tracks

NEEDS = ("attention", "attention_keys")
LEAST_RADIUS = 0.06  # of the side: an object is on the token that its centre is in


class RandomTokens(TokenMethod):
    """Tokens drawn at random over the whole video, the same for the same seed."""

    name = "random-tokens"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def compress(self, video, *, question, budget):
        """Draw as many tokens as the limit."""
        order = torch.randperm(video.frames * video.patches, generator=torch.Generator().manual_seed(self.seed))
        return Compressed.kept(video, order[: video.limit(budget)].sort().values)


def prepare(given: argparse.Namespace) -> None:
    """Write one file per video."""
    lm = VideoLM.from_pretrained(given.model or embedded_model(), device="cpu")
    backbone, model = lm.backbone, lm.backbone.model
    writer, world = BatchWriter(backbone.tokenizer), World(WorldConfig())
    embed = model.get_input_embeddings()
    given.cache.mkdir(parents=True, exist_ok=True)
    (given.cache / "model").write_text(str(given.model or ""))
    for number in range(given.videos):
        path = given.cache / f"{number:04}.pt"
        if path.exists():
            continue
        batch = question_batch(writer, world, "validation", (number,), given.frames)
        rows = batch.conversations
        (scene,) = batch.scenes
        frames = draw(rows.plans, torch.device("cpu")).numpy()
        video = Video(frames, tuple(range(len(frames))), tuple(scene.times), len(frames) / scene.fps, scene.fps, 0, "")
        (encoded,) = backbone.encode([video])
        prepared = model.model.prepare(encoded.features, relevance=True)
        tokens = model.model.frame_tokens(prepared.batch_of_one(), video.times).only(0)
        with torch.inference_mode():
            after = embed(rows.ids)
            own = [
                question_tokens(backbone.tokenizer, embed, text, question_range(text))
                for _, ((text, _),) in batch.asked
            ]
            saved = {
                "u": encoded.features.half(),
                "tokens": tokens.features,
                "grid": tokens.grid,
                "times": tuple(video.times),
                "per_frame": tokens.tokens_per_frame,
                "extras": dict(backbone.attention(encoded, NEEDS)),
                "prefix": rows.prefix,
                "ids": rows.ids,
                "labels": rows.labels,
                "questions": question_means(after, rows.question_mask),
                "question_tokens": own,
                "families": [question.family for question in batch.questions],
            }
        torch.save(saved, path)
        print(number, len(saved["families"]), flush=True)


def method_of(name: str) -> methods.Method:
    """Return the method of a name on the command line."""
    if ":" in name:
        module, _, expression = name.partition(":")
        return eval(expression, vars(import_module(module)))
    return RandomTokens() if name == "random-tokens" else methods.get(name)


@torch.inference_mode()
def visual_tokens(model, saved, method, budget, row):
    """Return the decoder tokens of a video for one of its questions."""
    question = saved["questions"][row] if method.uses_question else None
    if method.point == "features":
        prepared = model.prepare(saved["u"].float(), relevance=True)
        made = model.compress(prepared, question, budget=budget, method=method, times=saved["times"])
        return model.project(made.features[None])[0]
    return model.with_separators(compressed_tokens(saved, method, budget, row))[0]


def compressed_tokens(saved, method, budget, row) -> Compressed:
    """Return the result of a method on projected tokens for one of a video's questions."""
    extras = dict(saved["extras"])
    if method.uses_question:
        extras["question_tokens"] = saved["question_tokens"][row]
    features = VideoFeatures(
        saved["tokens"], saved["grid"], saved["times"], saved["per_frame"], extras, structure=STRUCTURE
    )
    return method(features, question=saved["questions"][row] if method.uses_question else None, budget=budget)


@torch.inference_mode()
def right_answers(model, saved, method, budget):
    """Return which questions about a video are answered right, and the time of the method alone."""
    path, embed, ids = model.model, model.get_input_embeddings(), saved["ids"]
    before, after = embed(saved["prefix"]), embed(ids)
    start = time.perf_counter()
    shared = None if method.uses_question else visual_tokens(path, saved, method, budget, 0)
    visual = [visual_tokens(path, saved, method, budget, row) if shared is None else shared for row in range(len(ids))]
    spent = time.perf_counter() - start
    rows = [torch.cat((before, tokens, own)) for tokens, own in zip(visual, after, strict=True)]
    whole = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    causal = {"full_attention": None}
    hidden = path.language_model(inputs_embeds=whole, attention_mask=causal, use_cache=False).last_hidden_state
    found = []
    for place, row in enumerate(rows):
        logits = model.lm_head(hidden[place, len(row) - ids.shape[1] : len(row)])[:-1]
        labels = saved["labels"][place, 1:]
        found.append(bool(((logits.argmax(-1) == labels) | (labels == IGNORED)).all()))
    return found, spent


def run(given: argparse.Namespace) -> None:
    """Answer and append."""
    where = (given.cache / "model").read_text()
    model = VideoLM.from_pretrained(where or embedded_model(), device="cpu").backbone.model
    journal, done = given.cache / "answers.jsonl", set()
    if journal.exists():
        done = {(row["method"], row["keep"], row["video"]) for row in map(json.loads, journal.open())}
    tested = {name: method_of(name) for name in given.names}
    for number, path in enumerate(sorted(given.cache.glob("*.pt"))[: given.videos]):
        saved = None
        for keep in given.keep:
            for name, method in tested.items():
                if (name, keep, number) in done:
                    continue
                saved = torch.load(path, weights_only=True) if saved is None else saved
                found, spent = right_answers(model, saved, method.bind(model.model.parts), Budget(keep=keep))
                row = {"method": name, "keep": keep, "video": number, "right": found, "seconds": round(spent, 4)}
                with journal.open("a") as out:
                    out.write(json.dumps(row | {"families": saved["families"]}) + "\n")
    table(given)


def table(given: argparse.Namespace) -> None:
    """Print shares of right answers in percent, and paired differences."""
    by = defaultdict(dict)
    families = defaultdict(lambda: defaultdict(list))
    for row in map(json.loads, (given.cache / "answers.jsonl").open()):
        if row["video"] < given.videos:
            by[row["method"], row["keep"]][row["video"]] = row["right"]
            for family, right in zip(row["families"], row["right"], strict=True):
                families[row["method"], row["keep"]][family].append(right)
    keeps = sorted({keep for _, keep in by}, reverse=True)
    wanted = given.names or list(dict.fromkeys(name for name, _ in by))
    random = np.random.default_rng(0)
    for name in wanted:
        cells = []
        for keep in keeps:
            mine, other = by.get((name, keep), {}), by.get((given.against, keep), {})
            if not mine:
                cells.append(" " * 26)
                continue
            mean = np.mean([right for found in mine.values() for right in found])
            both = [video for video in mine if video in other and name != given.against]
            text = ""
            if both:
                change = np.array([sum(mine[v]) - sum(other[v]) for v in both])
                count = np.array([len(mine[v]) for v in both])
                picks = random.integers(len(both), size=(2000, len(both)))
                low, high = np.percentile(change[picks].sum(1) / count[picks].sum(1), (2.5, 97.5))
                text = f"{change.sum() / count.sum() * 100:+5.1f} [{low * 100:+.1f} {high * 100:+.1f}]"
            cells.append(f"{mean * 100:5.1f} {text:20}")
        print(f"{name[-60:]:60}", "|".join(cells), f"n={sum(map(len, by[name, keeps[-1]].values()))}", flush=True)
        if given.families:
            for keep in keeps:
                shares = families[name, keep].items()
                print("   ", keep, " ".join(f"{family[:6]} {np.mean(found) * 100:.0f}" for family, found in shares))


def object_tokens(scene) -> torch.Tensor:
    """Return which tokens lie on each actor, [actors,T,S], for a grid of nine rows and columns."""
    found, size, side = tracks(scene), scene.size, 9
    scale = size if found.x.max() > 2 else 1  # pixels, or shares of the side
    centres = (torch.arange(side) + 0.5) / side
    x, y, radius = (torch.from_numpy(part / scale)[..., None, None] for part in (found.x, found.y, found.size))
    inside = (x - centres) ** 2 + (y - centres[:, None]) ** 2 < radius.clamp_min(LEAST_RADIUS) ** 2
    return (inside & torch.from_numpy(found.visible)[..., None, None]).flatten(2)


@torch.inference_mode()
def coverage(given: argparse.Namespace) -> None:
    """Print the mean over questions of both shares for every method."""
    world, tested = World(WorldConfig()), {name: method_of(name) for name in given.names}
    shares = defaultdict(list)
    for number, path in enumerate(sorted(given.cache.glob("*.pt"))[: given.videos]):
        saved, scene = torch.load(path, weights_only=True), world.scene("validation", number, given.frames)
        tokens = object_tokens(scene)
        for row, question in enumerate(world.questions(scene)):
            actors = sorted({each.actor for each in question.evidence} | set(question.subjects))
            shown = tokens[actors].any(0)
            if not bool(shown.any()):
                continue
            for (name, method), keep in product(tested.items(), given.keep):
                try:
                    made = compressed_tokens(saved, method, Budget(keep=keep), row)
                except ValueError:  # below the least that the method can keep
                    continue
                main_source = made.mixture.indices.gather(1, made.mixture.weights.argmax(1, keepdim=True))[:, 0]
                here = torch.zeros(shown.numel(), dtype=torch.bool).index_fill(0, main_source, True)
                here = here.view_as(shown) & shown
                shares[name, keep].append((here.any(1).sum() / shown.any(1).sum(), here.sum() / shown.sum()))
    for name in tested:
        found = (shares.get((name, keep)) for keep in given.keep)
        cells = ((np.nan, np.nan) if each is None else 100 * np.mean(each, 0) for each in found)
        print(f"{name[-60:]:60}", " | ".join(f"{frames:5.1f} {share:5.1f}" for frames, share in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run", "table", "coverage"])
    parser.add_argument("cache", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--videos", type=int, default=100)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--keep", type=float, nargs="+", default=[0.25, 0.15, 0.1])
    parser.add_argument("--against", default="random-tokens")
    parser.add_argument("--families", action="store_true")
    given = parser.parse_args()
    {"prepare": prepare, "run": run, "table": table, "coverage": coverage}[given.what](given)


if __name__ == "__main__":
    main()
