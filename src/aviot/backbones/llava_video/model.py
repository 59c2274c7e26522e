"""The model without its language-modelling head: encoder, positions, compressor, connector and decoder."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from aviot.backbones.base import CompressionRequest, VideoInPrompt
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.connector import Connector
from aviot.backbones.llava_video.features_to_tokens import FeaturesToTokens, PositionedVideo, wants_frame_means
from aviot.backbones.llava_video.prompt_batch import (
    IGNORED,
    EmbeddedPrompt,
    MergedPrompts,
    PromptGroup,
    Prompts,
    find_placeholder,
    group_prompts,
    pad_left,
    place_video,
    stack_videos,
)
from aviot.budget import one_per_prompt
from aviot.methods import Compressed, FrameMethod
from aviot.methods.aviot import Compression, Compressor, PositionEncoder
from aviot.methods.aviot.replay import Replays
from aviot.ot.device import on_gpu

# Features that one call of the vision tower computes, which bounds its memory for videos of any length: 32 frames of
# 27 x 27 patches of 1152 channels keep a GPU busy; a CPU is faster with two.
ENCODED_AT_ONCE = 32 * 27 * 27 * 1152
ENCODED_BY_CPU = 2 * 27 * 27 * 1152


class AviotPreTrainedModel(PreTrainedModel):
    """Base class for loading, saving and initialisation by the conventions of Hugging Face."""

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


class AviotModel(FeaturesToTokens, AviotPreTrainedModel):
    """The model without its language-modelling head."""

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
            for module in part.modules():  # initialised by their constructors, some with zeros
                module._is_hf_initialized = True  # type: ignore[assignment]
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the decoder's token embeddings."""
        return self.language_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the decoder's token embeddings."""
        self.language_model.set_input_embeddings(value)

    def encode(self, pixel_values: Float[Tensor, "F 3 H W"], frame_counts: Sequence[int]) -> tuple[Tensor, ...]:
        """Return the vision features [T,S,D] of each video, whose frames follow each other in `pixel_values`.

        They are the output of the last encoder layer that is run, before the final normalisation. Pass them to
        `forward` and `generate` as `encoded`, for any number of questions and budgets.
        """
        if sum(frame_counts) != len(pixel_values):
            raise ValueError(
                f"frame_counts must add up to the {len(pixel_values)} frames of pixel_values, got {list(frame_counts)}"
            )
        features = torch.cat([self.encode_chunk(chunk) for chunk in pixel_values.split(self.frames_at_once)])
        return features.split(list(frame_counts))

    @property
    def frames_at_once(self) -> int:
        """The number of frames that `encode` passes to the vision tower in one call."""
        size = self.config.compressor_config
        at_once = ENCODED_BY_CPU if self.device.type == "cpu" else ENCODED_AT_ONCE
        return max(1, at_once // (math.prod(size["grid"]) * size["dim"]))

    def encode_missing(
        self,
        encoded: Sequence[Tensor | None] | None,
        pixel_values: Float[Tensor, "F 3 H W"] | None,
        frame_counts: Int[Tensor, "V"] | None,
    ) -> tuple[Tensor, ...]:
        """Return every video's features: those given, and for each None those of the next video in `pixel_values`."""
        given = (None,) if encoded is None else tuple(encoded)
        fresh: tuple[Tensor, ...] = ()
        if pixel_values is not None:
            counts = [len(pixel_values)] if frame_counts is None else frame_counts.tolist()
            fresh = self.encode(pixel_values, counts)
            given = (None,) * len(fresh) if encoded is None else given
        missing = sum(features is None for features in given)
        if missing != len(fresh):
            raise ValueError(
                f"{missing} videos have no features and {len(fresh)} have pixels; give pixel_values, or their features "
                "from encode as encoded"
            )
        rest = iter(fresh)
        return tuple(next(rest) if features is None else features for features in given)

    def encode_chunk(self, pixels: Float[Tensor, "F 3 H W"]) -> Float[Tensor, "F S D"]:
        """Return the vision features of frames that are encoded in one call."""
        weight = next(self.vision_tower.parameters())
        pixels = pixels.to(weight.device)
        if pixels.dtype == torch.uint8:  # the processor's: normalised with a mean and deviation of one half
            pixels = pixels.float() / 127.5 - 1
        embedded = self.vision_tower.embeddings(pixels.to(weight.dtype))
        return self.vision_tower.encoder(inputs_embeds=embedded).last_hidden_state

    def merge(
        self, prompts: Prompts, encoded: Sequence[Float[Tensor, "T S D"]], request: CompressionRequest
    ) -> tuple[MergedPrompts, list[Compression | None]]:
        """Compress each prompt's video for its question and put the tokens in the place of its placeholder.

        Prompts whose videos have the same length and budget (one for all, or one per prompt) are compressed together.
        Without a record only tokens are computed.
        """
        method = self.method(request.method)
        if method.inside is not None:
            raise ValueError(f"method {method.name!r} drops tokens inside the decoder; ask by a VideoLM instead")
        embedded = self.embed_prompts(prompts)
        done = dict(self.compress_prompts(embedded, encoded, replace(request, method=method)))
        videos = [done[number] for number in range(len(embedded))]
        compressions = [None if video.made is None else video.made.compression for video in videos]
        return self.place(embedded, videos), compressions

    def place(self, prompts: Sequence[EmbeddedPrompt], videos: Sequence[VideoInPrompt]) -> MergedPrompts:
        """Put each prompt's video in the place of its placeholder, and pad the prompts on the left to one length."""
        placed = [
            place_video(prompt.embeds, prompt.placeholder, video.tokens, prompt.labels)
            for prompt, video in zip(prompts, videos, strict=True)
        ]
        merged = pad_left([sequence for sequence, _ in placed], [labels for _, labels in placed])
        finite = {id(each.finite): each.finite for each in videos if each.finite is not None}
        return replace(merged, finite=tuple(finite.values()))

    def compress_prompts(
        self, prompts: Sequence[EmbeddedPrompt], encoded: Sequence[Float[Tensor, "T S D"]], request: CompressionRequest
    ) -> Iterator[tuple[int, VideoInPrompt]]:
        """Yield each prompt's number and its compressed video, group by group.

        Tensors that depend on the videos alone stay in memory only while the next group asks about the same videos. If
        only tokens are needed, a GPU computes a group in one graph, from features to tokens, and replays it when its
        shapes recur.
        """
        prepared, prepared_for = None, None
        method = self.method(request.method)
        needs_tokens_only = not request.record and request.step is None and not torch.is_grad_enabled()
        for group in group_prompts(prompts, encoded, one_per_prompt(request.budget, len(prompts))):
            mixes_frames = isinstance(method, FrameMethod)
            if mixes_frames and needs_tokens_only and not method.uses_times and on_gpu(encoded[group.videos[0]]):
                u = stack_videos([encoded[video] for video in group.videos])
                made = self.video_tokens(u, group.questions, group.video_of_prompt, budget=group.budget, method=method)
                for number, tokens in zip(group.prompts, made.tokens, strict=True):
                    yield number, VideoInPrompt(tokens, None, made.finite)
                continue
            relevance = wants_frame_means(method, group.questions)
            if prepared is None or prepared_for != (group.videos, relevance):
                prepared, prepared_for = None, (group.videos, relevance)
                u = stack_videos([encoded[video] for video in group.videos])
                prepared = self.prepare(u, step=request.step, relevance=relevance)
            compress = self._whole_frames if mixes_frames else self._single_tokens
            done = compress(prepared.for_prompts(group.video_of_prompt), group, replace(request, method=method))
            yield from zip(group.prompts, done, strict=True)
            del done  # frees its videos before the next group's are computed

    def _whole_frames(
        self, videos: PositionedVideo, group: PromptGroup, request: CompressionRequest
    ) -> Iterator[VideoInPrompt]:
        """Compress and project a group in one call."""
        method = self.method(request.method)
        how: dict[str, Any] = {"budget": group.budget, "method": method, "step": request.step, "times": request.times}
        batch = self.compress(videos, group.questions, **how)
        flags = None if request.record or torch.is_grad_enabled() else batch.flags()
        for index, tokens in enumerate(self.project(batch.features)):
            made = None
            if request.record:
                features = self.features_of(videos.only(index), request.times)
                made = Compressed.of_frames(batch.video(index), features)
                made = made if method.compresses else replace(made, compression=None)
            yield VideoInPrompt(tokens, made, flags)

    def _single_tokens(
        self, videos: PositionedVideo, group: PromptGroup, request: CompressionRequest
    ) -> Iterator[VideoInPrompt]:
        """Project every frame and let the method keep or merge tokens, one prompt after another."""
        method, step = self.method(request.method), request.step
        if step is not None:
            raise ValueError(
                f"method {method.name!r} acts on {method.point} and is not trained; choose one that is trained"
            )
        if method.before_pooling:
            raise ValueError(f"method {method.name!r} reads tokens before they are pooled; ask by a VideoLM")
        every = self.frame_tokens(videos, request.times)
        for index in range(len(group.prompts)):
            question = None if group.questions is None else group.questions[index]
            own = replace(every, features=every.features[index])
            made = method(own, question=question, budget=group.budget)
            tokens, order = self.with_separators(made)
            yield VideoInPrompt(tokens, made, order=order)

    def embed_prompts(self, prompts: Prompts) -> list[EmbeddedPrompt]:
        """Embed all prompts in one call, since sharded weights are gathered per call, and drop their padding."""
        is_placeholder = prompts.input_ids == self.config.video_token_id
        embeds = self.get_input_embeddings()(prompts.input_ids.masked_fill(is_placeholder, 0))
        if torch.is_grad_enabled():
            embeds = embeds + self.idle_weights().to(embeds)
        videos, embedded = prompts.video_index.tolist(), []
        for number in range(len(prompts.input_ids)):
            present = prompts.attention_mask[number].bool()
            embedded.append(
                EmbeddedPrompt(
                    embeds=embeds[number][present],
                    placeholder=find_placeholder(is_placeholder[number][present]),
                    labels=None if prompts.labels is None else prompts.labels[number][present],
                    video=videos[number],
                    question=_question_mean(prompts, number, embeds[number]),
                )
            )
        return embedded


def _question_mean(prompts: Prompts, number: int, embeds: Float[Tensor, "L d"]) -> Float[Tensor, "d"] | None:
    """Return the mean embedding of a question's tokens that are not supervised, without gradient; None without any."""
    in_question = torch.zeros(len(embeds), dtype=torch.bool, device=embeds.device)
    for first, end in prompts.question_span[number].reshape(-1, 2).tolist():
        if not 0 <= first <= end <= len(embeds):
            raise ValueError(f"question_span must lie inside the {len(embeds)} tokens, got {[first, end]}")
        in_question[first:end] = True
    if prompts.labels is not None:
        in_question &= prompts.labels[number] == IGNORED
    chosen = embeds[in_question].detach()
    return chosen.mean(0) if len(chosen) else None


def _drop_unused_tail(tower: nn.Module) -> None:
    """Remove final normalisation and pooling head from an encoder: features are taken before them."""
    tower.post_layernorm = nn.Identity()
    if hasattr(tower, "head"):
        tower.head = nn.Identity()


def fresh_weights(config: AviotConfig) -> dict[str, Tensor]:
    """Return untrained weights of the parts that AVIOT adds to a LLaVA-Video model; always the same."""
    compressor = config.compressor
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = {
            "model.compressor.": Compressor(compressor),
            "model.position.": PositionEncoder(compressor),
            "model.question_projection.": nn.Linear(config.text_config.hidden_size, compressor.dim, bias=False),
        }
    return {prefix + name: tensor for prefix, part in parts.items() for name, tensor in part.state_dict().items()}
