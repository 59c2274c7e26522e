"""From pixels to the first token and the one after: each part by itself, for each method."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from aviot.bench.alone import COMPRESSING, Setup, Tell, backward_part, over_settings, random_features
from aviot.bench.bandwidth import bandwidth_share, fewest_bytes
from aviot.bench.result import FIRST_TOKEN, Method, Row, total_ms
from aviot.bench.timing import Part, Work, attempt
from aviot.bench.workload import Workload, random_workload
from aviot.methods.aviot import RandomDrop
from aviot.methods.aviot.replay import Replays
from aviot.methods.aviot.schedule import path_for, support_count
from aviot.models.backbone import Prompts
from aviot.models.grouping import stack_videos
from aviot.models.modeling import AviotForConditionalGeneration
from aviot.models.path import Prepared
from aviot.models.sequence import place_video, positions_of

ANY_RATIO = 2.0  # the model asks for one even where nothing is compressed


class Pipeline:
    """One model and one batch of videos, encoded once, with every method's way to the decoder."""

    def __init__(self, model: AviotForConditionalGeneration, work: Workload, setup: Setup) -> None:
        self.model, self.work = model, work
        self.encoded: tuple[Tensor, ...] = model.encode(work.pixels, [work.frames] * work.batch)
        self.drop = RandomDrop(model.config.compressor, setup.generator())
        self.replays = Replays()
        numbers = torch.arange(work.batch, device=work.ids.device)
        self.rows = model.model.embed_rows(Prompts(work.ids, torch.ones_like(work.ids), work.span, numbers))

    def encode(self) -> object:
        """Pixels to vision features."""
        return self.model.encode(self.work.pixels, [self.work.frames] * self.work.batch)

    def prepared(self, method: Method) -> Prepared:
        """Positions of the videos, and frame means where the method asks for a relevance."""
        return self.model.model.prepare(stack_videos(self.encoded), relevance=method == "aviot")

    def compress(self, prepared: Prepared, method: Method, ratio: float) -> Tensor:
        """The videos' features [B,K,S,D], compressed for their questions; a GPU replays what it has done before."""
        if method == "random-drop":
            return self.drop(prepared.x, ratio=ratio).features
        path = self.model.model

        def work(x: Tensor, means: Tensor | None = None, asked: Tensor | None = None) -> Tensor:
            return path.compress(Prepared(x, x, means), asked, ratio=ratio, compressor=method)[0]

        inputs = {"x": prepared.x}
        if prepared.frame_means is not None:
            questions = [row.question for row in self.rows if row.question is not None]
            inputs |= {"means": prepared.frame_means, "asked": torch.stack(questions)}
        modules = (path.question_projection, path.compressor)
        return self.replays.run(work, inputs, key=(method, ratio), modules=modules)

    def project(self, features: Tensor) -> Tensor:
        """Features to each video's decoder tokens: projection, pooling, separators."""
        return self.model.model.project(features)

    def to_tokens(self, method: Method, ratio: float) -> list[Tensor]:
        """Vision features to each prompt's decoder tokens, everything in one go, as the model runs it."""
        if method == "random-drop":  # drawn anew each time, which no graph does
            return list(self.project(self.compress(self.prepared(method), method, ratio)))
        how: dict[str, Any] = {"ratio": ratio, "compressor": method, "step": None, "record": False}
        done = dict(self.model.model.compress_rows(self.rows, self.encoded, **how))
        return [done[number].tokens for number in range(len(self.rows))]

    def decoder_input(self, method: Method, ratio: float) -> Tensor:
        """The same with the prompts embedded and the tokens put in their place: the decoder's input [B,L,d]."""
        if method != "random-drop":
            return self.model.merge_prompts(
                self.work.ids,
                encoded=self.encoded,
                question_span=self.work.span,
                ratio=ratio,
                compressor=method,
                record=False,
            )[0].embeds
        videos = zip(self.rows, self.to_tokens(method, ratio), strict=True)
        return torch.stack([place_video(row.embeds, row.place, video, None)[0] for row, video in videos])

    def prefill(self, embeds: Tensor) -> Any:
        """The decoder over the whole prompt; its last logits and its cache."""
        positions = positions_of(torch.ones(embeds.shape[:2], dtype=torch.long, device=embeds.device))
        return self.model(inputs_embeds=embeds, position_ids=positions, logits_to_keep=1, use_cache=True)

    def next_token(self, embeds: Tensor) -> Work:
        """Decoding one token after the prompt; each call adds one to the cache, as in an answer."""
        cache = self.prefill(embeds).past_key_values
        token = torch.zeros(len(embeds), 1, dtype=torch.long, device=embeds.device)

        def step() -> object:
            positions = torch.full_like(token, cache.get_seq_length())
            return self.model(input_ids=token, position_ids=positions, past_key_values=cache, use_cache=True)

        return step


def measure_model(
    model: AviotForConditionalGeneration,
    setup: Setup,
    frames: tuple[int, ...],
    batches: tuple[int, ...],
    ratios: tuple[float, ...],
    tell: Tell,
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Every method at every frame count, batch size and ratio; and remarks on what could not be measured."""

    def measure_one(count: int, batch: int) -> list[Row]:
        tell(f"{count} frames, batch {batch}: encode")
        found = _measure_setting(model, setup, count, batch, ratios, tell)
        if setup.backward:
            found = [_with_backward(row, model, setup, tell) for row in found]
        return _compared(found)

    return over_settings(frames, batches, measure_one)


@torch.inference_mode()
def _measure_setting(
    model: AviotForConditionalGeneration, setup: Setup, frames: int, batch: int, ratios: tuple[float, ...], tell: Tell
) -> list[Row]:
    pipeline = Pipeline(model, random_workload(model, batch, frames, setup.generator()), setup)
    encode = setup.time(pipeline.encode)
    settings: list[tuple[Method, float | None]] = [("none", None)]
    settings += [(method, ratio) for ratio in ratios for method in COMPRESSING]
    rows = []
    for method, ratio in settings:
        tell(f"{frames} frames, batch {batch}: {method}" + ("" if ratio is None else f" at {ratio:g}"))
        parts = {"encode": encode} | _method_parts(pipeline, setup, method, ratio)
        rows.append(_row(model, setup, pipeline.work, method, ratio, parts))
    return rows


def _method_parts(pipeline: Pipeline, setup: Setup, method: Method, ratio: float | None) -> dict[str, Part]:
    """What one method costs after the encoder; where memory runs out, what would have come next is missing."""
    wish = ANY_RATIO if ratio is None else ratio
    parts: dict[str, Part] = {}

    def features_alone() -> None:
        prepared = pipeline.prepared(method)
        features = pipeline.compress(prepared, method, wish)
        if method != "none":
            parts["compress"] = setup.time(lambda: pipeline.compress(prepared, method, wish))
        parts["project"] = setup.time(lambda: pipeline.project(features))

    def decoder() -> None:
        parts["to_tokens"] = setup.time(lambda: pipeline.to_tokens(method, wish))
        parts["decoder_input"] = setup.time(lambda: pipeline.decoder_input(method, wish))
        embeds = pipeline.decoder_input(method, wish)
        parts["prefill"] = setup.time(lambda: pipeline.prefill(embeds))
        parts["next_token"] = setup.time(pipeline.next_token(embeds))

    compress = () if method == "none" else ("compress",)
    names = (*compress, "project", "to_tokens", "decoder_input", "prefill", "next_token")
    for steps in (features_alone, decoder):
        failure = attempt(steps)
        if failure is not None:
            parts |= {name: failure for name in names if name not in parts}
    return parts


def _row(
    model: AviotForConditionalGeneration,
    setup: Setup,
    work: Workload,
    method: Method,
    ratio: float | None,
    parts: dict[str, Part],
) -> Row:
    config = model.config.compressor
    supports = work.frames if ratio is None else support_count(work.frames, ratio)
    path: tuple[int, ...] = (work.frames, supports) if supports < work.frames else (work.frames,)
    share = None
    if method == "aviot":
        path = path_for(config, work.frames, supports)
        moved = work.batch * fewest_bytes(path, config.patches, config.dim, setup.dtype.itemsize)
        share = bandwidth_share(moved, parts["compress"], setup.bandwidth)
    first = total_ms(parts, FIRST_TOKEN)
    return Row(
        method=method,
        frames=work.frames,
        batch=work.batch,
        ratio=ratio,
        supports=supports,
        tokens=supports * model.model.connector.tokens_per_support,
        path=path,
        parts=parts,
        bandwidth_share=share,
        first_token_ms=first,
        videos_per_second=None if first is None else 1000 * work.batch / first,
    )


def _compared(rows: list[Row]) -> list[Row]:
    """Rows of one setting with their factors against the first, which is uncompressed."""
    whole = rows[0].first_token_ms
    return [
        replace(row, factor=None if whole is None or row.first_token_ms is None else whole / row.first_token_ms)
        for row in rows
    ]


def _with_backward(row: Row, model: AviotForConditionalGeneration, setup: Setup, tell: Tell) -> Row:
    """The row with the compressor's own forward and backward, on random features of the same shape."""
    if row.method != "aviot":
        return row
    tell(f"{row.frames} frames, batch {row.batch}: forward and backward at {row.ratio:g}")

    def work() -> Part:
        given = random_features(model.config.compressor, setup, row.batch, row.frames)
        return backward_part(model.model.compressor, given.u, given, row.supports, setup)

    return replace(row, parts=row.parts | {"backward": attempt(work)})
