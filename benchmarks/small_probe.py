"""What a training run of the small model knows so far, by kind of word and by family of question.

python benchmarks/small_probe.py RUN [--scenes 48] [--frames 16]

Uncompressed, teacher forced, on validation scenes. "describe" are words of what an object does in a video, "picture"
those of single frames, "open" and "options" whole answers.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.models import AviotForConditionalGeneration
from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES
from aviot_lab.demo_model.accuracy import accuracy
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.demo_model.networks import configure
from aviot_lab.demo_model.state import load_compressor, load_weights
from aviot_lab.demo_model.tokenizer import tokenizer_of
from aviot_lab.world import Scene, World, WorldConfig, descriptions, frame_descriptions
from aviot_lab.world.description import SIZE_WORDS
from aviot_lab.world.words import TURNS

KINDS = {
    "shape": SHAPES,
    "colour": COLOUR_NAMES,
    "texture": TEXTURES,
    "size": SIZE_WORDS,
    "top or bottom": ("top", "bottom"),
    "left or right": ("left", "right"),
    "up or down": ("up", "down"),
    "quarter": ("first", "second", "third", "last"),
    "turn": TURNS,
    "another event": (";",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--scenes", type=int, default=48)
    parser.add_argument("--frames", type=int, default=16)
    given = parser.parse_args()
    tokenizer, world = tokenizer_of(given.run), World(WorldConfig())
    model = new_model(tokenizer, 0).eval()
    load_weights(given.run, model, "model.")
    configure(model, load_compressor(given.run), {})
    scenes = [world.scene("validation", number, given.frames) for number in range(given.scenes)]
    described = [(scene, turn) for scene in scenes for turn in descriptions(scene)[:2]]
    report("describe", words(model, tokenizer, described))
    pictured = [(scene, turn) for scene in scenes for turn in frame_descriptions(scene, [given.frames // 2])[:3]]
    report("picture", words(model, tokenizer, pictured, [given.frames // 2]))
    found = accuracy(
        model,
        tokenizer,
        world,
        split="validation",
        scenes=range(given.scenes),
        frames=given.frames,
        settings=[("none", None)],
        videos=8,
    )
    report("answer", ((family, right) for family, rights in found["none", None].items() for right in rights))


@torch.no_grad()
def words(
    model: AviotForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    described: Sequence[tuple[Scene, tuple[str, str]]],
    frames: Sequence[int] | None = None,
) -> Iterator[tuple[str, bool]]:
    """Kind of every supervised word, and whether it would be said."""
    writer = BatchWriter(tokenizer)
    kinds = {tokenizer(form)["input_ids"][0]: k for k, ws in KINDS.items() for w in ws for form in (w, f" {w}")}
    for start in range(0, len(described), 16):
        batch = writer.conversations([(scene, [turn]) for scene, turn in described[start : start + 16]], frames=frames)
        found = answer(model, encode(model, batch.plans, batch.videos), batch, ratio=None)
        goal = batch.labels[:, 1:]
        supervised = goal != IGNORED
        for word, right in zip(goal[supervised].tolist(), found.agrees[supervised].tolist(), strict=True):
            yield kinds.get(word, "other"), right


def report(what: str, found: Iterator[tuple[str, bool]]) -> None:
    by_kind = defaultdict(list)
    for kind, right in found:
        by_kind[kind].append(right)
    for kind, rights in sorted(by_kind.items()):
        print(f"{what:10} {kind:15} {sum(rights) / len(rights):6.1%} of {len(rights)}", flush=True)


if __name__ == "__main__":
    main()
