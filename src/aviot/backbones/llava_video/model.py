"""Encoder, positions, compressor, connector and decoder: everything but the language model's head."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from aviot.backbones.base import CompressionRequest, VideoInPrompt
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.connector import Connector
from aviot.backbones.llava_video.grouping import Group, Row, group_rows, stack_videos
from aviot.backbones.llava_video.sequence import IGNORED, Merged, find_video, pad_left, place_video
from aviot.backbones.llava_video.video_path import Prepared, VideoPath, wants_frame_means
from aviot.budget import one_per_row
from aviot.methods import Compressed, FrameMethod
from aviot.methods.aviot import Compression, Compressor, PositionEncoder
from aviot.methods.aviot.replay import Replays
from aviot.ot.device import on_gpu

# Features that one call of the vision tower makes, which bounds its memory whatever the video's length: 32 frames of
# 27 x 27 patches of 1152 channels keep a GPU busy; a CPU is faster with two.
ENCODED_AT_ONCE = 32 * 27 * 27 * 1152
ENCODED_BY_CPU = 2 * 27 * 27 * 1152


@dataclass(frozen=True)
class Prompts:
    """Token prompts and the videos they ask about, one placeholder each."""

    input_ids: Int[Tensor, "B L"]
    attention_mask: Int[Tensor, "B L"]
    question_span: Int[Tensor, "B *R 2"]  # first token of the question, and one past its last; R such in several turns
    video_index: Int[Tensor, "B"]  # which of the encoded videos each prompt asks about
    labels: Int[Tensor, "B L"] | None = None


class AviotPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation, as Hugging Face models have them."""

    config_class = AviotConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    input_modalities = ["video", "text"]  # noqa: RUF012
    supports_gradient_checkpointing = True
    _no_split_modules = ["SiglipEncoderLayer", "Qwen2DecoderLayer", "Compressor", "Connector"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Connector):
            nn.init.normal_(module.row_separator, std=len(module.row_separator) ** -0.5)


class AviotModel(VideoPath, AviotPreTrainedModel):
    """Everything but the language model's head."""

    def __init__(self, config: AviotConfig) -> None:
        super().__init__(config)
        compressor = config.compressor
        self.vision_tower = AutoModel.from_config(config.vision_config, trust_remote_code=False)
        self.position = PositionEncoder(compressor)
        self.compressor = Compressor(compressor)
        self.question_projection = nn.Linear(config.text_config.hidden_size, compressor.dim, bias=False)
        self.connector = Connector(compressor.dim, config.text_config.hidden_size, compressor.grid, config.pool_stride)
        self.language_model = AutoModel.from_config(config.text_config, trust_remote_code=False)
        self._replays = Replays()
        _drop_unused_tail(self.vision_tower)
        for part in (self.position, self.compressor, self.question_projection):
            for module in part.modules():  # their constructors know how they start, zeros among it
                module._is_hf_initialized = True  # type: ignore[assignment]
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The decoder's token embeddings."""
        return self.language_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the decoder's token embeddings."""
        self.language_model.set_input_embeddings(value)

    def encode(self, pixel_values: Float[Tensor, "F 3 H W"], frame_counts: Sequence[int]) -> tuple[Tensor, ...]:
        """Vision features [T,S,D] of each video, whose frames follow each other in `pixel_values`.

        The encoder's last layer that is run, before its final normalisation. What comes back can be kept and handed to
        `forward` and `generate` as `encoded`, for other questions and ratios.
        """
        if sum(frame_counts) != len(pixel_values):
            raise ValueError(
                f"frame_counts must add up to the {len(pixel_values)} frames of pixel_values, got {list(frame_counts)}"
            )
        size = self.config.compressor_config
        at_once = ENCODED_BY_CPU if self.device.type == "cpu" else ENCODED_AT_ONCE
        frames = max(1, at_once // (math.prod(size["grid"]) * size["dim"]))
        features = torch.cat([self._encode_chunk(chunk) for chunk in pixel_values.split(frames)])
        return features.split(list(frame_counts))

    def encode_missing(
        self,
        encoded: Sequence[Tensor | None] | None,
        pixel_values: Float[Tensor, "F 3 H W"] | None,
        frame_counts: Int[Tensor, "V"] | None,
    ) -> tuple[Tensor, ...]:
        """The features of every video: those that are given, and of the pixels in turn for each that is None."""
        given = (None,) if encoded is None else tuple(encoded)
        fresh: tuple[Tensor, ...] = ()
        if pixel_values is not None:
            counts = [len(pixel_values)] if frame_counts is None else frame_counts.tolist()
            fresh = self.encode(pixel_values, counts)
            given = (None,) * len(fresh) if encoded is None else given
        missing = sum(features is None for features in given)
        if missing != len(fresh):
            raise ValueError(
                f"{missing} videos have no features and {len(fresh)} have pixels; give pixel_values, or what encode "
                "made of them as encoded"
            )
        rest = iter(fresh)
        return tuple(next(rest) if features is None else features for features in given)

    def _encode_chunk(self, pixels: Float[Tensor, "F 3 H W"]) -> Float[Tensor, "F S D"]:
        weight = next(self.vision_tower.parameters())
        pixels = pixels.to(weight.device)
        if pixels.dtype == torch.uint8:  # as the processor gives them: mean and deviation one half
            pixels = pixels.float() / 127.5 - 1
        embedded = self.vision_tower.embeddings(pixels.to(weight.dtype))
        return self.vision_tower.encoder(inputs_embeds=embedded).last_hidden_state

    def merge(
        self, prompts: Prompts, encoded: Sequence[Float[Tensor, "T S D"]], request: CompressionRequest
    ) -> tuple[Merged, list[Compression | None]]:
        """Compress each prompt's video for its question and put the tokens where the placeholder is.

        Prompts whose videos have the same length and budget (one for all, or one per prompt) are compressed together.
        Without a record only the tokens are made.
        """
        rows = self.embed_rows(prompts)
        done = dict(self.compress_rows(rows, encoded, request))
        tokens = [done[number] for number in range(len(rows))]
        return self.place(rows, tokens), [None if each.made is None else each.made.compression for each in tokens]

    def place(self, rows: Sequence[Row], videos: Sequence[VideoInPrompt]) -> Merged:
        """Put each prompt's video where its placeholder is, and pad the prompts on the left to one length."""
        placed = [
            place_video(row.embeds, row.place, video.tokens, row.labels)
            for row, video in zip(rows, videos, strict=True)
        ]
        merged = pad_left([sequence for sequence, _ in placed], [labels for _, labels in placed])
        finite = {id(each.finite): each.finite for each in videos if each.finite is not None}
        return replace(merged, finite=tuple(finite.values()))

    def compress_rows(
        self, rows: Sequence[Row], encoded: Sequence[Float[Tensor, "T S D"]], request: CompressionRequest
    ) -> Iterator[tuple[int, VideoInPrompt]]:
        """Yield each row's number and its compressed video, group after group.

        Tensors that depend on the videos alone are kept while the next group asks about the same, and no longer. Where
        only tokens are wanted a GPU does a group in one piece, videos and all, and replays it when it comes again.
        """
        prepared, holds = None, None
        method = self.method(request.method)
        tokens_alone = not request.record and request.step is None and not torch.is_grad_enabled()
        for group in group_rows(rows, encoded, one_per_row(request.budget, len(rows))):
            whole_frames = isinstance(method, FrameMethod)
            if whole_frames and tokens_alone and on_gpu(encoded[group.videos[0]]):
                u = stack_videos([encoded[video] for video in group.videos])
                made = self.video_tokens(u, group.questions, group.asked, budget=group.budget, method=method)
                for row, tokens in zip(group.rows, made.tokens, strict=True):
                    yield row, VideoInPrompt(tokens, None, made.finite)
                continue
            relevance = wants_frame_means(method, group.questions)
            if prepared is None or holds != (group.videos, relevance):
                prepared, holds = None, (group.videos, relevance)
                u = stack_videos([encoded[video] for video in group.videos])
                prepared = self.prepare(u, step=request.step, relevance=relevance)
            compress = self._whole_frames if whole_frames else self._single_tokens
            done = compress(prepared.for_prompts(group.asked), group, replace(request, method=method))
            yield from zip(group.rows, done, strict=True)
            del done  # and the videos with it, before the next group's are made

    def _whole_frames(self, videos: Prepared, group: Group, request: CompressionRequest) -> Iterator[VideoInPrompt]:
        """Compress and project a group in one call."""
        method = self.method(request.method)
        batch = self.compress(videos, group.questions, budget=group.budget, method=method, step=request.step)
        flags = None if request.record or torch.is_grad_enabled() else batch.flags()
        for place, tokens in enumerate(self.project(batch.features)):
            made = None
            if request.record:
                features = self.features_of(videos.only(place), request.times)
                made = Compressed.of_frames(batch.video(place), features)
                made = made if method.compresses else replace(made, compression=None)
            yield VideoInPrompt(tokens, made, flags)

    def _single_tokens(self, videos: Prepared, group: Group, request: CompressionRequest) -> Iterator[VideoInPrompt]:
        """Project every frame and let the method keep or merge tokens, one prompt after the other."""
        method, step = self.method(request.method), request.step
        if step is not None:
            raise ValueError(f"method {method.name!r} acts on {method.point} and is not trained; choose one that is")
        every = self.frame_tokens(videos, request.times)
        for place in range(len(group.rows)):
            question = None if group.questions is None else group.questions[place]
            mine = replace(every, features=every.features[place])
            made = method(mine, question=question, budget=group.budget)
            tokens, order = self.with_separators(made)
            yield VideoInPrompt(tokens, made if request.record else None, order=order)

    def embed_rows(self, prompts: Prompts) -> list[Row]:
        """Each prompt without its padding, embedded: all in one call, since sharded weights are gathered by calls."""
        is_placeholder = prompts.input_ids == self.config.video_token_id
        embeds = self.get_input_embeddings()(prompts.input_ids.masked_fill(is_placeholder, 0))
        if torch.is_grad_enabled():
            embeds = embeds + self.idle_weights().to(embeds)
        videos, rows = prompts.video_index.tolist(), []
        for number in range(len(prompts.input_ids)):
            present = prompts.attention_mask[number].bool()
            rows.append(
                Row(
                    embeds=embeds[number][present],
                    place=find_video(is_placeholder[number][present]),
                    labels=None if prompts.labels is None else prompts.labels[number][present],
                    video=videos[number],
                    question=_question_mean(prompts, number, embeds[number]),
                )
            )
        return rows


def _question_mean(prompts: Prompts, row: int, embeds: Float[Tensor, "L d"]) -> Float[Tensor, "d"] | None:
    """The mean embedding of the question's tokens, without those that are supervised; no gradient."""
    asked = torch.zeros(len(embeds), dtype=torch.bool, device=embeds.device)
    for first, end in prompts.question_span[row].reshape(-1, 2).tolist():
        if not 0 <= first <= end <= len(embeds):
            raise ValueError(f"question_span must lie inside the {len(embeds)} tokens, got {[first, end]}")
        asked[first:end] = True
    if prompts.labels is not None:
        asked &= prompts.labels[row] == IGNORED
    chosen = embeds[asked].detach()
    return chosen.mean(0) if len(chosen) else None


def _drop_unused_tail(tower: nn.Module) -> None:
    """Features are taken before the encoder's final normalisation, so neither it nor a pooling head has weights."""
    tower.post_layernorm = nn.Identity()
    if hasattr(tower, "head"):
        tower.head = nn.Identity()


def fresh_weights(config: AviotConfig) -> dict[str, Tensor]:
    """What AVIOT adds to a LLaVA-Video model, untrained; the same every time."""
    compressor = config.compressor
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = {
            "model.compressor.": Compressor(compressor),
            "model.position.": PositionEncoder(compressor),
            "model.question_projection.": nn.Linear(config.text_config.hidden_size, compressor.dim, bias=False),
        }
    return {prefix + name: tensor for prefix, part in parts.items() for name, tensor in part.state_dict().items()}
