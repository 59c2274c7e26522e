"""Teach the small model its world, in pieces that go on where the last one stopped.

python -m aviot.small.train RUN [--seconds 500] [--compressor uniform --start RUN]
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration
from aviot.models.path import CompressorName
from aviot.small.accuracy import Setting, accuracy
from aviot.small.architecture import new_model
from aviot.small.curriculum import CURRICULUM, Curriculum, Phase
from aviot.small.learning import answer, encode
from aviot.small.lessons import Lesson, Lessons, Pictures
from aviot.small.naming import Naming, names_at
from aviot.small.patches import PatchReader, patch_targets
from aviot.small.state import load_state, save_state
from aviot.small.tokenizer import KEPT, tokenizer_of
from aviot.synthetic import World, WorldConfig

REPORT = 20  # steps between lines of the log
CLIP = 1.0  # of the gradient's norm
EXAMINED = (16, 64)  # frames of the held-out videos at the end of a piece
SCENES = 256
SETTINGS: tuple[Setting, ...] = (("none", None), ("aviot", 2.0), ("aviot", 4.0), ("aviot", 10.0), ("segment-mean", 4.0))


class Pupil(nn.Module):
    """The model, what it leaves behind when it has learnt, and the compressor that it learns with."""

    def __init__(
        self, model: AviotForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, compressor: CompressorName
    ) -> None:
        super().__init__()
        self.model = model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.reader = PatchReader(model.config.vision_config.hidden_size)
        self.naming = Naming(tokenizer)
        self.compressor = compressor

    def terms(self, lesson: Lesson | Pictures, step: int) -> tuple[dict[str, Tensor], Tensor]:
        """The terms of a lesson's loss, and the share that was right."""
        return self._patches(lesson) if isinstance(lesson, Pictures) else self._answers(lesson, step)

    def compile_layers(self) -> None:
        """Compile each kind of layer once, for sequences of any length."""
        path = self.model.model
        for layer in (*path.vision_tower.encoder.layers, *path.language_model.layers):
            layer.compile(dynamic=True)

    def keep_encoder(self) -> None:
        """Leave the encoder as it is from now on; on a GPU in the precision that it is used in."""
        tower = self.model.model.vision_tower.requires_grad_(False)
        if tower.device.type == "cuda":
            tower.to(torch.bfloat16)

    def _patches(self, lesson: Pictures) -> tuple[dict[str, Tensor], Tensor]:
        path = self.model.model
        features = encode(self.model, lesson.plans, len(lesson.objects.x))
        looks, place = patch_targets(lesson.objects, features.device)
        patches, right = self.reader.loss(features[:, 0], looks, place)
        cells = self._cells(path.project(path.prepare(features, relevance=False).x))
        seen = names_at(looks, place, path.connector.grid, self.model.config.pool_stride)
        return {"patches": patches, "naming": self.naming.loss(cells.flatten(1, 3), self._words, seen)}, right

    def _answers(self, lesson: Lesson, step: int) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            u = encode(self.model, lesson.plans, lesson.videos)
        found = answer(self.model, u, lesson, ratio=lesson.ratio, compressor=self.compressor, step=step)
        terms = {"language": found.language, "transport": self.model.config.transport_loss_weight * found.transport}
        if lesson.ratio is None:
            means = self._cells(found.tokens).mean((2, 3))
            terms["naming"] = self.naming.loss(means, self._words, lesson.seen.to(u.device))
        return terms, found.right.float().mean()

    @property
    def _words(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def _cells(self, tokens: Tensor) -> Tensor:
        """The decoder's tokens of videos by frame, row and column, without the rows' separators."""
        rows, columns = self.model.model.connector.pooled
        return tokens.unflatten(1, (-1, rows, columns + 1))[..., :-1, :]


def train(
    folder: Path,
    curriculum: Curriculum,
    *,
    device: torch.device,
    seconds: float = float("inf"),
    workers: int = 0,
    compressor: CompressorName = "aviot",
    start: Path | None = None,
    compiled: bool = False,
) -> None:
    """Steps until the curriculum or the time is over, then the state and the accuracy so far.

    A new run begins with the first step, or where the run in `start` stopped. `compiled` has torch compile the layers
    of encoder and decoder, which takes its time once.
    """
    began = time.monotonic()
    tokenizer = tokenizer_of(folder, start)
    tokenizer.save_pretrained(folder / KEPT)
    pupil = Pupil(new_model(tokenizer, curriculum.seed), tokenizer, compressor).to(device)
    if compiled:
        pupil.compile_layers()
    optimizer = torch.optim.AdamW(
        pupil.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.01, fused=device.type == "cuda"
    )
    step = load_state(folder, pupil, optimizer) or (load_state(start, pupil, optimizer) if start else 0)
    loader = DataLoader(
        Lessons(curriculum, tokenizer),
        batch_size=None,
        sampler=range(step, curriculum.steps),
        num_workers=workers,
        prefetch_factor=4 if workers else None,
    )
    log = Log(folder / "log.jsonl")
    precision = partial(torch.autocast, device.type, torch.bfloat16, enabled=device.type == "cuda")
    for lesson in loader:
        log.waited()
        phase, _ = curriculum.at(step)
        if phase.task != "patches":
            pupil.keep_encoder()
        for group in optimizer.param_groups:
            group["lr"] = curriculum.rate(step)
        with precision():  # for a step and no longer: it keeps cast weights until it ends
            terms, right = pupil.terms(lesson, step)
        torch.stack(list(terms.values())).sum().backward()
        norm = nn.utils.clip_grad_norm_(pupil.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        log.add(step, phase, {**terms, "right": right, "norm": norm})
        if step % REPORT == 0 and time.monotonic() - began > seconds:
            break
    save_state(folder, pupil, optimizer, step)
    with precision():
        examine(pupil.model, tokenizer, curriculum.seed, step, log)


def examine(
    model: AviotForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, seed: int, step: int, log: "Log"
) -> None:
    """Write down how many held-out questions are answered right, by family."""
    world = World(WorldConfig(seed=seed))
    for frames in EXAMINED:
        found = accuracy(
            model, tokenizer, world, split="validation", scenes=range(SCENES), frames=frames, settings=SETTINGS
        )
        for (name, ratio), families in found.items():
            every = [good for answers in families.values() for good in answers]
            log.write(
                {
                    "step": step,
                    "frames": frames,
                    "compressor": name,
                    "ratio": ratio,
                    "questions": len(every),
                    "right": round(sum(every) / len(every), 4),
                    "families": {family: round(sum(g) / len(g), 3) for family, g in sorted(families.items())},
                }
            )


class Log:
    """One JSON object a line: means over the steps since the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sums: dict[str, list[Tensor]] = {}
        self.since = self.last = time.monotonic()
        self.waiting = self.busy = 0.0

    def waited(self) -> None:
        """The next lesson is there."""
        now = time.monotonic()
        self.waiting += now - self.last
        self.last = now

    def add(self, step: int, phase: Phase, found: dict[str, Tensor]) -> None:
        """Count a step that was taken; nothing is read off the device until a line is due."""
        for name, value in found.items():
            self.sums.setdefault(name, []).append(value.detach())
        now = time.monotonic()
        self.last, self.busy = now, self.busy + now - self.last
        if step % REPORT:
            return
        means = {name: round(float(torch.stack(values).mean()), 4) for name, values in self.sums.items()}
        now = time.monotonic()
        spent = {"step_ms": now - self.since, "wait_ms": self.waiting, "host_ms": self.busy}
        times = {name: round(1000 * value / REPORT, 1) for name, value in spent.items()}
        self.write({"step": step, "task": phase.task, **means, **times})
        self.sums, self.since, self.last, self.waiting, self.busy = {}, now, now, 0.0, 0.0

    def write(self, line: dict[str, Any]) -> None:
        """Append a line, and show it."""
        text = json.dumps(line)
        print(text, flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, to go on later")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=8, help="processes that make lessons")
    parser.add_argument("--compressor", choices=get_args(CompressorName), default="aviot")
    parser.add_argument("--start", type=Path, help="a run to begin from")
    parser.add_argument("--compiled", action="store_true", help="have torch compile the layers first")
    given = vars(parser.parse_args())
    train(given.pop("folder"), CURRICULUM, device=torch.device(given.pop("device")), **given)


if __name__ == "__main__":
    main()
