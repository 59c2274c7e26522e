"""Accuracy of questions about long streams: the memory of a stream against simpler ones with the same decoder tokens.

Long videos of the world (`aviot_lab.world.long`: six scenes one after another, about 2,000 frames, one event in each)
are encoded once by the bundled model and then pass through the memory as a stream. About every event one question is
asked at a random moment right after it (perception), and others at random moments later on (recall). Every question is
answered from

- `bank`: a memory of --memory supports, merged for the question and compressed by AVIOT to --supports, as
  `StreamingSession.ask` does it
- `bank only`: a memory of --supports supports, all of which the decoder reads
- `last`: the latest --supports frames
- `uniform`: --supports evenly spaced frames of everything so far, which no bounded memory has
- `window`: the latest --memory frames, uncompressed: more tokens than the others

and, where --variants names them, from the memory of `bank` in other ways, with the same number of tokens:

- `unmerged`: compressed as it is, without merges for the question
- `merged-32`: merged to 32 supports by the memory's own rule at the moment of the question, then compressed
- `recent-4`: its latest 4 supports are kept whole, and the others compressed
- `flat`: compressed without the question's relevance, so that no segment of time gets more supports for it
- `merged-32+recent-4`: both

Choose a variant on the split `validation`, and measure what was chosen on `test`.

Rows go to a JSONL file, by which an interrupted run is continued; without videos left it prints the table.

    nice -n 10 python benchmarks/stream_accuracy.py --split test --videos 8 -o stream.jsonl
    python benchmarks/stream_accuracy.py --split validation --videos 12 --variants merged-32 recent-4 -o v.jsonl
"""

import argparse
import json
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aviot import Budget, VideoLM
from aviot.bundled import embedded_model
from aviot.engine.base import Stopwatch
from aviot.evaluation.intervals import difference_interval, share_interval
from aviot.methods.aviot.baselines import FixedMixture
from aviot.methods.aviot.method import AviotMethod
from aviot.methods.aviot.result import Compression
from aviot.methods.features import VideoFeatures
from aviot.session import VideoSession
from aviot.streaming import FrameRange, SupportBank
from aviot.streaming.asking import merged_for_question
from aviot.streaming.bank import FEATURES
from aviot.utils.journal import Journal, read_rows
from aviot_lab.world.long import LongVideo, long_video

FPS = 2.0
SOON = 20  # frames after an event's end within which a question of perception is asked
LATER = 100  # frames after an event's end from which a question counts as one of recall
RECALLS = 2  # questions of recall per event
AT_ONCE = 8  # frames that the memory gets at a time
REFERENCES = ("last", "uniform", "window", "bank only")


def moments(video: LongVideo, number: int) -> list[tuple[int, int, str]]:
    """Return when what is asked: frame, event, and kind of question, in temporal order."""
    random, found = np.random.default_rng(number), []
    for event in range(len(video.scenes)):
        end = video.evidence_end(event)
        found.append((min(video.frames, end + int(random.integers(1, SOON))), event, "perception"))
        if end + LATER < video.frames:
            later = random.integers(end + LATER, video.frames + 1, RECALLS)
            found += [(int(at), event, "recall") for at in later]
    return sorted(found)


@dataclass(frozen=True)
class Variant:
    """Another way from a bank to the decoder's supports; `merged` and `recent` are numbers of supports."""

    name: str
    merged: int = 0
    recent: int = 0
    flat: bool = False
    unmerged: bool = False

    @classmethod
    def named(cls, name: str) -> "Variant":
        """Read a name such as merged-32+recent-4."""
        values: dict[str, int] = {}
        for part in name.split("+"):
            key, _, number = part.partition("-")
            if key not in ("merged", "recent", "flat", "unmerged") or (key in ("flat", "unmerged")) == bool(number):
                raise ValueError(
                    f"a variant is made of merged-N, recent-N, flat and unmerged, joined by +; got {name!r}"
                )
            values[key] = int(number) if number else True
        return cls(name, **values)


class Varied(AviotMethod):
    """AVIOT that leaves the latest supports whole, or shares supports out without the question's relevance."""

    def __init__(self, variant: Variant, *parts: torch.nn.Module) -> None:
        super().__init__(*parts)
        self.variant = variant

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """Its parameters, too."""
        return *super().replay_key, self.variant

    def bind(self, parts: Mapping[str, torch.nn.Module]) -> "Varied":
        """Return it with a model's parts."""
        own = super().bind(parts)
        return Varied(self.variant, own.compressor, own.question_projection)

    def mix(self, video: VideoFeatures, **how: Any) -> Compression:
        """Compress all but the latest supports."""
        recent, extras = self.variant.recent, dict(video.extras)
        if self.variant.flat:
            extras["frame_means"] = torch.ones_like(video.extras["frame_means"])
        count = how["budget"].frames(video.frames, video.tokens_per_frame)
        if not 0 < recent < count < video.frames:
            return super().mix(replace(video, extras=extras), **how)
        axis = video.features.ndim - 3  # of frames, in extras too
        kept = video.frames - recent
        older = {name: tensor.narrow(axis, 0, kept) for name, tensor in extras.items()}
        head = video.features.narrow(axis, 0, kept)
        head_video = replace(video, features=head, times=video.times[:kept], extras=older)
        made = super().mix(head_video, **how | {"budget": Budget(supports=count - recent)})
        composed = made.provenance().coefficients  # [*B,K,S,T]
        whole = composed.new_zeros(*composed.shape[:-3], count, video.patches, video.frames)
        whole[..., : count - recent, :, :kept] = composed
        for place in range(1, recent + 1):
            whole[..., -place, :, -place] = 1
        rows = whole.transpose(-3, -2).reshape(-1, video.patches, count, video.frames)
        return replace(
            made,
            features=torch.cat((made.features, video.features.narrow(axis, kept, recent)), axis),
            path=(video.frames, count),
            stages=(FixedMixture(rows, torch.tensor([[count - recent, recent]]).expand(len(rows), -1)),),
        )


class Memories:
    """The memories that are compared, of one video's features up to a moment."""

    def __init__(
        self,
        session: VideoSession,
        features: torch.Tensor,
        memory: int,
        supports: int,
        variants: Sequence[Variant] = (),
    ) -> None:
        self.session, self.features, self.memory, self.supports = session, features, memory, supports
        self.variants = variants
        like = {FEATURES: features[:1]}
        self.banks = {size: SupportBank(size, max(1, size // 4), like) for size in (memory, supports)}
        self.seen = 0

    def up_to(self, frame: int) -> None:
        """Let the frames before this one arrive."""
        while self.seen < frame:
            here = range(self.seen, min(self.seen + AT_ONCE, frame))
            records = [FrameRange.frame(i, i, i / FPS) for i in here]
            for bank in self.banks.values():
                bank.add({FEATURES: self.features[here.start : here.stop]}, records)
            self.seen = here.stop

    def sessions(self, question: str) -> Iterator[tuple[str, VideoSession, str | AviotMethod, int | None]]:
        """Yield name, session, method and number of supports (None: all)."""
        for name, size in (("bank", self.memory), ("bank only", self.supports)):
            view = self.banks[size].view()
            held = self._session(view.features, [record.mean_time for record in view.records])
            if name == "bank":
                view = merged_for_question(view, held.relevance(question), self.supports)
                held = self._session(view.features, [record.mean_time for record in view.records])
            yield (name, held, "aviot", self.supports) if name == "bank" else (name, held, "none", None)
        every = np.linspace(0, self.seen - 1, min(self.supports, self.seen)).round().astype(int)
        for name, chosen in (
            ("last", np.arange(max(0, self.seen - self.supports), self.seen)),
            ("uniform", every),
            ("window", np.arange(max(0, self.seen - self.memory), self.seen)),
        ):
            yield name, self._session(self.features[torch.from_numpy(chosen)], chosen / FPS), "none", None
        for variant in self.variants:
            view = self.banks[self.memory].view()
            if 0 < variant.merged < len(view):
                smaller = SupportBank(variant.merged, max(1, variant.merged // 4), view.tensors)
                smaller.add(view.tensors, view.records)
                view = smaller.view()
            held = self._session(view.features, [record.mean_time for record in view.records])
            yield variant.name, held, Varied(variant), self.supports

    def _session(self, features: torch.Tensor, times: object) -> VideoSession:
        own = tuple(float(time) for time in times)
        video = replace(self.session.video, indices=tuple(range(len(own))), times=own, duration=self.seen / FPS)
        features = features.to(self.features.dtype)
        encoded = replace(self.session.encoded, video=video, features=features, times=own, cache={})
        return VideoSession(self.session.lm, encoded, Stopwatch(self.session.backbone.device))


def encoded(lm: VideoLM, video: LongVideo) -> tuple[VideoSession, torch.Tensor]:
    """Return a session with the last scene, and the features of all frames."""
    parts = []
    for event in range(len(video.scenes)):
        frames = video.render(event).numpy()
        parts.append(session := lm.open(frames, source_fps=FPS, frames=len(frames)))
    return session, torch.cat([part.encoded.features for part in parts])


def rows_of(lm: VideoLM, arguments: argparse.Namespace, number: int) -> Iterator[dict]:
    """Yield one row per question and memory."""
    video = long_video(arguments.split, number)
    session, features = encoded(lm, video)
    memories = Memories(session, features, arguments.memory, arguments.supports, arguments.variants)
    for asked, (frame, event, kind) in enumerate(moments(video, number)):
        memories.up_to(frame)
        question = video.questions[event]
        about = {"video": number, "asked": asked, "frame": frame, "event": event, "kind": kind}
        about |= {"family": question.family, "age": frame - video.evidence_end(event), "truth": question.answer}
        for name, held, method, supports in memories.sessions(question.open):
            budget = None if supports is None else Budget(supports=min(supports, len(held.encoded.times)))
            answer = held.ask(question.open, method=method, budget=budget, max_new_tokens=8)
            said = answer.text.strip().lower()
            counts = {"tokens": answer.tokens_after, "answer": said, "right": said == question.answer}
            yield about | {"memory": name} | counts


def table(rows: list[dict]) -> str:
    """Return right answers by kind and memory, and differences from the bank; intervals are clustered by video."""
    lines = ["| kind | memory | tokens | right | of | share, 95 % | bank minus this, 95 % |", "| --- " * 7 + "|"]
    variants = sorted({row["memory"] for row in rows} - {"bank", *REFERENCES})
    for kind in ("recall", "perception"):
        own = [row for row in rows if row["kind"] == kind]
        bank = {(row["video"], row["asked"]): row["right"] for row in own if row["memory"] == "bank"}
        for name in ("bank", *REFERENCES, *variants):
            those = [row for row in own if row["memory"] == name]
            if not those:
                continue
            videos, right = [row["video"] for row in those], [float(row["right"]) for row in those]
            apart = [bank[row["video"], row["asked"]] - good for row, good in zip(those, right, strict=True)]
            difference = f"{100 * np.mean(apart):+.0f} {_ends(difference_interval(apart, videos))}"
            share = f"{100 * np.mean(right):.0f} % {_ends(share_interval(right, videos))}"
            tokens = f"{np.mean([row['tokens'] for row in those]):,.0f}"
            columns = (kind, name, tokens, f"{sum(right):.0f}", len(right), share, "" if name == "bank" else difference)
            lines.append(f"| {' | '.join(map(str, columns))} |")
    return "\n".join(lines)


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"({100 * interval[0]:.0f} to {100 * interval[1]:.0f})"


def main() -> None:
    """Answer what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="test")
    parser.add_argument("--videos", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--memory", type=int, default=64)
    parser.add_argument("--supports", type=int, default=16)
    parser.add_argument("--variants", type=Variant.named, nargs="*", default=[], help="other ways to ask the bank")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no video after this time")
    parser.add_argument("-o", "--output", type=Path, required=True, nargs="+", help="the first is written")
    arguments = parser.parse_args()
    started = time.monotonic()
    done = {row["video"] for row in read_rows(arguments.output[0]) if row.get("last")}
    lm = VideoLM.from_pretrained(embedded_model(), device=arguments.device)
    with Journal(arguments.output[0]) as journal:
        for number in range(arguments.first, arguments.first + arguments.videos):
            if number in done or time.monotonic() - started > 60 * arguments.minutes:
                continue
            rows = list(rows_of(lm, arguments, number))
            for place, row in enumerate(rows):
                journal.add(row | ({"last": True} if place == len(rows) - 1 else {}))
            print(json.dumps({"video": number, "seconds": round(time.monotonic() - started)}), flush=True)
    print(table([row for path in arguments.output for row in read_rows(path)]))


if __name__ == "__main__":
    main()
