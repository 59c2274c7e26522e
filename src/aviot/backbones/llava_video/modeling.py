"""The video language model, as Hugging Face users know them: forward, generate, from_pretrained."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList
from transformers.utils import ModelOutput

from aviot.backbones.base import CompressionRequest
from aviot.backbones.checkpoints.errors import CheckpointError, reason_of
from aviot.backbones.checkpoints.foreign_code import refuse_trust
from aviot.backbones.checkpoints.hub import ORIGIN, resolve_folder
from aviot.backbones.checkpoints.shards import Shards, read_shards
from aviot.backbones.llava_video.checkpoint import FRESH_START, check_claims, check_tensors, read_source
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.generation_settings import read_generation_settings
from aviot.backbones.llava_video.model import AviotModel, AviotPreTrainedModel, Prompts, fresh_weights
from aviot.backbones.llava_video.sequence import Merged, positions_of
from aviot.budget import Budget
from aviot.engine.guard import FiniteGuard, guarded
from aviot.methods import Method
from aviot.methods.aviot import Compression
from aviot.methods.registry import DEFAULT

logger = logging.getLogger(__name__)


@dataclass
class AviotOutput(ModelOutput):
    """What a forward pass returns; one `Compression` per prompt and each video's features when they were asked for."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    past_key_values: Any = None
    hidden_states: Any = None
    attentions: Any = None
    lm_loss: Tensor | None = None
    transport_loss: Tensor | None = None
    compressions: Any = None
    encoded: Any = None


class AviotForConditionalGeneration(AviotPreTrainedModel, GenerationMixin):
    """A video language model that reads K frames' worth of tokens instead of T.

    Give it the processor's output. `ratio` (a ratio or a `Budget`, one for all or one per prompt) and `compressor` (a
    method, or its name in `aviot.methods.names()`) are chosen per call; `encoded`, from `encode`, replaces the pixels
    when a video has been encoded before (None in it stands for the next video of the pixels).
    """

    accepts_loss_kwargs = False  # losses are means over the batch; a Trainer has to scale them itself
    _tied_weights_keys = {"lm_head.weight": "model.language_model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: AviotConfig) -> None:
        super().__init__(config)
        self.model = AviotModel(config)
        self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The language model's head."""
        return self.lm_head

    def encode(self, pixel_values: Float[Tensor, "F 3 H W"], frame_counts: Sequence[int]) -> tuple[Tensor, ...]:
        """Vision features of each video, to be used for any number of questions."""
        return self.model.encode(pixel_values, frame_counts)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load our checkpoints, published AVIOT ones as they are, and LLaVA-Video's (its compressor then starts fresh).

        A folder is checked tensor by tensor before anything is built or loaded. Only safetensors are read, and no code
        of a checkpoint is run. A name on the hub is fetched with `download=True` and not otherwise.
        """
        refuse_trust(kwargs)
        if pretrained_model_name_or_path is None:
            return super().from_pretrained(None, *args, trust_remote_code=False, **kwargs)
        origin = {name: kwargs.pop(name) for name in ORIGIN if name in kwargs}
        folder = resolve_folder(pretrained_model_name_or_path, **origin)
        source = read_source(folder)
        if "config" in kwargs:
            source = replace(source, config=kwargs.pop("config"))
        check_claims(source, shards := read_shards(folder))
        stored = check_tensors(source, shards, expected_tensors(cls, source.config))
        settings = kwargs.pop("generation_config", None) or read_generation_settings(folder, source.config)
        how: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True}
        if source.layout == "aviot":
            how |= {"config": source.config, "generation_config": settings}
            return super().from_pretrained(folder, *args, **kwargs | how)
        state = load_renamed(shards, stored)
        if source.layout == "llava-video":
            state |= fresh_weights(source.config)
            logger.warning(FRESH_START, folder)
        loaded = super().from_pretrained(None, *args, **kwargs | how, config=source.config, state_dict=state)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.name_or_path = str(folder)
        model.generation_config = settings
        return loaded

    def forward(
        self,
        input_ids: Int[Tensor, "B L"] | None = None,
        pixel_values: Float[Tensor, "F 3 H W"] | None = None,
        frame_counts: Int[Tensor, "V"] | None = None,
        question_span: Int[Tensor, "B *R 2"] | None = None,
        video_index: Int[Tensor, "B"] | None = None,
        encoded: Sequence[Tensor | None] | None = None,
        attention_mask: Int[Tensor, "B L"] | None = None,
        labels: Int[Tensor, "B L"] | None = None,
        inputs_embeds: Float[Tensor, "B L d"] | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        past_key_values: Any = None,
        ratio: Budget | float | Sequence[Budget | float] | None = None,
        compressor: str | Method = DEFAULT,
        step: int | None = None,
        logits_to_keep: int = 0,
        output_compression: bool = False,
        output_encoded: bool = False,
        **kwargs: Any,
    ) -> AviotOutput:
        """Logits over the merged sequence, and the losses when there are labels.

        Without a video (a decoding step, or plain text) this is the decoder alone. `logits_to_keep` must reach back to
        the token before the first supervised one.
        """
        compressions: list[Compression | None] = []
        self._refuse_lonely_placeholder(input_ids, pixel_values, encoded)
        if pixel_values is not None or encoded is not None:
            encoded = self.model.encode_missing(encoded, pixel_values, frame_counts)
            merged, compressions = self.merge_prompts(
                input_ids,
                question_span=question_span,
                video_index=video_index,
                encoded=encoded,
                attention_mask=attention_mask,
                labels=labels,
                ratio=ratio,
                compressor=compressor,
                step=step,
                record=output_compression or labels is not None,
            )
            input_ids, inputs_embeds = None, merged.embeds
            attention_mask, labels = merged.attention_mask, merged.labels
            position_ids = positions_of(attention_mask)
        outputs = self.model.language_model(
            input_ids=input_ids,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            **kwargs,
        )
        hidden = outputs.last_hidden_state
        logits = self.lm_head(hidden[:, -logits_to_keep:] if logits_to_keep else hidden)
        lm_loss = None
        if labels is not None:
            labels = labels[:, -logits.shape[1] :]
            lm_loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.text_config.vocab_size)
        transport_loss = _mean_transport_loss(compressions) if labels is not None else None
        loss = lm_loss
        if lm_loss is not None and transport_loss is not None:
            loss = lm_loss + self.config.transport_loss_weight * transport_loss
        return AviotOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            lm_loss=lm_loss,
            transport_loss=transport_loss,
            compressions=compressions if output_compression else None,
            encoded=encoded if output_encoded else None,
        )

    @torch.no_grad()
    def generate(
        self,
        input_ids: Int[Tensor, "B L"] | None = None,
        *,
        pixel_values: Float[Tensor, "F 3 H W"] | None = None,
        frame_counts: Int[Tensor, "V"] | None = None,
        question_span: Int[Tensor, "B *R 2"] | None = None,
        video_index: Int[Tensor, "B"] | None = None,
        encoded: Sequence[Tensor | None] | None = None,
        attention_mask: Int[Tensor, "B L"] | None = None,
        ratio: Budget | float | Sequence[Budget | float] | None = None,
        compressor: str | Method = DEFAULT,
        **kwargs: Any,
    ) -> Any:
        """Answer each prompt from its compressed video; returns the new tokens alone.

        Raises ValueError if anything on the way, compression or logits, is not finite.
        """
        self._refuse_lonely_placeholder(input_ids, pixel_values, encoded)
        if pixel_values is None and encoded is None:
            return self._generate_guarded(FiniteGuard(), inputs=input_ids, attention_mask=attention_mask, **kwargs)
        merged, _ = self.merge_prompts(
            input_ids,
            pixel_values=pixel_values,
            frame_counts=frame_counts,
            question_span=question_span,
            video_index=video_index,
            encoded=encoded,
            attention_mask=attention_mask,
            ratio=ratio,
            compressor=compressor,
            record=False,
        )
        self.check_length(merged.embeds.shape[1], kwargs.get("max_new_tokens") or 0)
        return self._generate_guarded(
            FiniteGuard(merged.finite), inputs_embeds=merged.embeds, attention_mask=merged.attention_mask, **kwargs
        )

    def _generate_guarded(
        self, guard: FiniteGuard, *, logits_processor: Sequence[LogitsProcessor] | None = None, **kwargs: Any
    ) -> Any:
        """Generate as transformers does, with a guard that raises for logits that are not finite."""
        if any(isinstance(each, FiniteGuard) for each in logits_processor or ()):  # an engine's, which watches already
            return super().generate(logits_processor=logits_processor, **kwargs)
        with guarded(self, guard):
            return super().generate(logits_processor=LogitsProcessorList([*(logits_processor or ()), guard]), **kwargs)

    def merge_prompts(
        self,
        input_ids: Int[Tensor, "B L"] | None,
        *,
        pixel_values: Float[Tensor, "F 3 H W"] | None = None,
        frame_counts: Int[Tensor, "V"] | None = None,
        question_span: Int[Tensor, "B *R 2"] | None = None,
        video_index: Int[Tensor, "B"] | None = None,
        encoded: Sequence[Tensor | None] | None = None,
        attention_mask: Int[Tensor, "B L"] | None = None,
        labels: Int[Tensor, "B L"] | None = None,
        ratio: Budget | float | Sequence[Budget | float] | None = None,
        compressor: str | Method = DEFAULT,
        step: int | None = None,
        record: bool = True,
    ) -> tuple[Merged, list[Compression | None]]:
        """Encode (unless `encoded` is given), compress for each question, and put the tokens in place.

        Without a `record` no `Compression` comes back, and a GPU replays shapes that come again.
        """
        if input_ids is None or question_span is None:
            raise ValueError("a video needs input_ids and question_span; build them with the processor")
        encoded = self.model.encode_missing(encoded, pixel_values, frame_counts)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if video_index is None:
            if len(encoded) not in (1, len(input_ids)):
                raise ValueError(
                    f"give one video, one per prompt, or video_index; got {len(encoded)} videos and "
                    f"{len(input_ids)} prompts"
                )
            video_index = torch.arange(len(input_ids), device=input_ids.device).clamp_max(len(encoded) - 1)
        prompts = Prompts(input_ids, attention_mask, question_span, video_index, labels)
        request = CompressionRequest(self.config.ratio if ratio is None else ratio, compressor, step, record)
        merged, compressions = self.model.merge(prompts, encoded, request)
        self.check_length(merged.embeds.shape[1], 0)
        return merged, compressions

    def check_length(self, prompt: int, answer: int) -> None:
        """Refuse a prompt that leaves no room for the answer among the positions that the decoder knows."""
        limit = self.config.text_config.max_position_embeddings
        if prompt + answer > limit:
            asked = f" and the answer may have {answer:,}" if answer else ""
            raise ValueError(
                f"the prompt has {prompt:,} tokens{asked}; the decoder reads {limit:,}: "
                "compress more (a higher ratio), sample fewer frames, or shorten the question or the answer"
            )

    def _refuse_lonely_placeholder(
        self, input_ids: Tensor | None, pixel_values: Tensor | None, encoded: Sequence[Tensor | None] | None
    ) -> None:
        """A placeholder is no token: without its video it would index the embeddings out of range."""
        if pixel_values is not None or encoded is not None or input_ids is None or input_ids.shape[-1] == 1:
            return  # a video is there, or this is a decoding step
        if bool((input_ids == self.config.video_token_id).any()):
            raise ValueError("the prompt has a video placeholder but no video; give pixel_values or encoded")


def _mean_transport_loss(compressions: Sequence[Compression | None]) -> Tensor | None:
    losses = [compression.loss for compression in compressions if compression is not None]
    return torch.stack(losses).mean() if losses else None


def expected_tensors(cls: type[AviotPreTrainedModel], config: AviotConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor a model of this config has; nothing is allocated."""
    try:
        with torch.device("meta"):
            return {name: tuple(tensor.shape) for name, tensor in cls(config).state_dict().items()}
    except (ArithmeticError, KeyError, RuntimeError, TypeError, ValueError) as error:  # how parts refuse a config
        raise CheckpointError(
            f"config.json does not describe a model that can be built ({type(error).__name__}: {reason_of(error)})"
        ) from error


def load_renamed(shards: Shards, stored: Mapping[str, str]) -> dict[str, Tensor]:
    """Our names and the tensors themselves, file after file."""
    ours = {theirs: name for name, theirs in stored.items()}
    state: dict[str, Tensor] = {}
    for path in shards.paths:
        with safe_open(path, "pt") as shard:
            state |= {ours[name]: shard.get_tensor(name) for name in shards.of(path) if name in ours}
    return state
