"""The video language model by the conventions of Hugging Face: forward, generate, from_pretrained."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList
from transformers.utils import ModelOutput

from aviot.backbones.base import CompressionRequest, check_length
from aviot.backbones.checkpoints.folder import ORIGIN, resolve_folder
from aviot.backbones.checkpoints.foreign_code import refuse_trust
from aviot.backbones.checkpoints.shards import read_shards
from aviot.backbones.llava_video.auxiliary_files import read_generation_settings
from aviot.backbones.llava_video.checkpoint import (
    FRESH_START,
    check_sizes,
    check_tensors,
    expected_tensors,
    load_renamed,
    read_checkpoint_folder,
)
from aviot.backbones.llava_video.configuration import AviotConfig
from aviot.backbones.llava_video.model import AviotModel, AviotPreTrainedModel, fresh_weights
from aviot.backbones.llava_video.prompt_batch import MergedPrompts, PromptInputs, positions_in
from aviot.budget import Budget
from aviot.config import SWITCHES, CompressorConfig
from aviot.engine.guard import FiniteGuard, guarded
from aviot.methods import Method
from aviot.methods.aviot import Compression
from aviot.methods.registry import DEFAULT

logger = logging.getLogger(__name__)

Module = TypeVar("Module", bound=nn.Module)


@dataclass
class AviotOutput(ModelOutput):
    """The result of a forward pass; if requested, with one `Compression` per prompt and each video's features."""

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

    It takes the processor's output. `ratio` (a ratio or a `Budget`, one for all or one per prompt) and `compressor` (a
    method, or its name in `aviot.methods.names()`) are chosen per call. `encoded`, from `encode`, replaces the pixels
    of videos that have been encoded before (None in it stands for the next video of the pixels).
    """

    starts_fresh = False  # True for a LLaVA-Video checkpoint, which has no trained parts of AVIOT
    accepts_loss_kwargs = False  # losses are means over the batch; a Trainer must scale them itself
    _tied_weights_keys = {"lm_head.weight": "model.language_model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: AviotConfig) -> None:
        super().__init__(config)
        self.model = AviotModel(config)
        self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
        self.post_init()

    def reconfigure(self, compressor: CompressorConfig) -> None:
        """Use other constants of the compressor, with the same weights, from now on and in checkpoints."""
        self.model.compressor.config = compressor
        self.config.compressor_config = compressor.to_dict()

    def get_output_embeddings(self) -> nn.Module:
        """Return the language-modelling head."""
        return self.lm_head

    def encode(self, pixel_values: Float[Tensor, "F 3 H W"], frame_counts: Sequence[int]) -> tuple[Tensor, ...]:
        """Return the vision features of each video, for any number of questions."""
        return self.model.encode(pixel_values, frame_counts)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint: ours, a published AVIOT one, or LLaVA-Video's (with an untrained compressor).

        A folder is checked tensor by tensor before anything is built or loaded. Only safetensors are read, and no code
        of a checkpoint is run. A name on the hub is fetched only with `download=True`.
        """
        refuse_trust(kwargs)
        if pretrained_model_name_or_path is None:
            return super().from_pretrained(None, *args, trust_remote_code=False, **kwargs)
        origin = {name: kwargs.pop(name) for name in ORIGIN if name in kwargs}
        folder = resolve_folder(pretrained_model_name_or_path, **origin)
        checkpoint = read_checkpoint_folder(folder)
        if "config" in kwargs:
            checkpoint = replace(checkpoint, config=kwargs.pop("config"))
        check_sizes(checkpoint, shards := read_shards(folder))
        stored = check_tensors(checkpoint, shards, expected_tensors(cls, checkpoint.config))
        settings = kwargs.pop("generation_config", None) or read_generation_settings(folder, checkpoint.config)
        options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True}
        if checkpoint.layout == "aviot":
            options |= {"config": checkpoint.config, "generation_config": settings}
            return super().from_pretrained(folder, *args, **kwargs | options)
        state = load_renamed(shards, stored)
        if checkpoint.layout == "llava-video":
            state |= fresh_weights(checkpoint.config)
            logger.warning(FRESH_START, folder)
        loaded = super().from_pretrained(None, *args, **kwargs | options, config=checkpoint.config, state_dict=state)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.name_or_path = str(folder)
        model.generation_config = settings
        model.starts_fresh = checkpoint.layout == "llava-video"
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
        """Return logits over the merged sequence, and the losses if there are labels.

        Without a video (a decoding step, or plain text) only the decoder runs. `logits_to_keep` must reach back to the
        token before the first supervised one.
        """
        compressions: list[Compression | None] = []
        self._refuse_lonely_placeholder(input_ids, pixel_values, encoded)
        if pixel_values is not None or encoded is not None:
            inputs = PromptInputs(input_ids, question_span, attention_mask, video_index, labels)
            encoded = self.model.encode_missing(encoded, pixel_values, frame_counts)
            request = self._request(ratio, compressor, step=step, record=output_compression or labels is not None)
            merged, compressions = self._merge(inputs, encoded, request)
            input_ids, inputs_embeds = None, merged.embeds
            attention_mask, labels = merged.attention_mask, merged.labels
            position_ids = positions_in(attention_mask)
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
        loss, lm_loss, transport_loss = self._losses(logits, labels, compressions)
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

    def _losses(
        self,
        logits: Float[Tensor, "B l V"],
        labels: Int[Tensor, "B L"] | None,
        compressions: Sequence[Compression | None],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the weighted sum, the language-modelling loss and the transport loss; None where there is none."""
        if labels is None:
            return None, None, None
        labels = labels[:, -logits.shape[1] :]
        lm_loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.text_config.vocab_size)
        losses = [compression.loss for compression in compressions if compression is not None]
        if not losses:
            return lm_loss, lm_loss, None
        transport_loss = torch.stack(losses).mean()
        return lm_loss + self.config.transport_loss_weight * transport_loss, lm_loss, transport_loss

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
        """Answer each prompt from its compressed video; return the new tokens only.

        Raises ValueError if values of the compression or logits are not finite.
        """
        self._refuse_lonely_placeholder(input_ids, pixel_values, encoded)
        if pixel_values is None and encoded is None:
            return self._generate_guarded(FiniteGuard(), inputs=input_ids, attention_mask=attention_mask, **kwargs)
        inputs = PromptInputs(input_ids, question_span, attention_mask, video_index)
        features = self.model.encode_missing(encoded, pixel_values, frame_counts)
        merged, _ = self._merge(inputs, features, self._request(ratio, compressor, record=False))
        self.check_length(merged.embeds.shape[1], kwargs.get("max_new_tokens") or 0)
        return self._generate_guarded(
            FiniteGuard(merged.finite), inputs_embeds=merged.embeds, attention_mask=merged.attention_mask, **kwargs
        )

    def _generate_guarded(
        self, guard: FiniteGuard, *, logits_processor: Sequence[LogitsProcessor] | None = None, **kwargs: Any
    ) -> Any:
        """Generate with a guard that raises for logits that are not finite."""
        if any(isinstance(each, FiniteGuard) for each in logits_processor or ()):  # an engine's, which checks them
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
    ) -> tuple[MergedPrompts, list[Compression | None]]:
        """Encode videos (unless `encoded` is given), compress each for its question, and put the tokens in place.

        Without a `record` no `Compression` is returned, and a GPU replays shapes that recur.
        """
        inputs = PromptInputs(input_ids, question_span, attention_mask, video_index, labels)
        features = self.model.encode_missing(encoded, pixel_values, frame_counts)
        return self._merge(inputs, features, self._request(ratio, compressor, step=step, record=record))

    def _request(
        self,
        ratio: Budget | float | Sequence[Budget | float] | None,
        method: str | Method,
        *,
        step: int | None = None,
        record: bool,
    ) -> CompressionRequest:
        return CompressionRequest(self.config.ratio if ratio is None else ratio, method, step, record)

    def _merge(
        self, inputs: PromptInputs, encoded: Sequence[Float[Tensor, "T S D"]], request: CompressionRequest
    ) -> tuple[MergedPrompts, list[Compression | None]]:
        merged, compressions = self.model.merge(inputs.complete(len(encoded)), encoded, request)
        self.check_length(merged.embeds.shape[1], 0)
        return merged, compressions

    def check_length(self, prompt: int, answer: int) -> None:
        """Refuse a prompt and an answer that are together longer than the decoder's positions."""
        check_length(prompt, answer, self.config.text_config.max_position_embeddings)

    def _refuse_lonely_placeholder(
        self, input_ids: Tensor | None, pixel_values: Tensor | None, encoded: Sequence[Tensor | None] | None
    ) -> None:
        """Refuse a placeholder without a video: its id lies outside the embedding table."""
        if pixel_values is not None or encoded is not None or input_ids is None or input_ids.shape[-1] == 1:
            return  # there is a video, or this is a decoding step
        if bool((input_ids == self.config.video_token_id).any()):
            raise ValueError("the prompt has a video placeholder but no video; give pixel_values or encoded")


def variant(model: AviotForConditionalGeneration, **switches: Any) -> AviotForConditionalGeneration:
    """Return a model with other ablation switches of `CompressorConfig` that shares the weights of `model`.

    Training or loading weights in one changes the other, as long as both stay on their device.
    """
    unknown = [name for name in switches if name not in SWITCHES]
    if unknown:
        raise ValueError(f"a variant changes {', '.join(SWITCHES)}, got {', '.join(unknown)}; build a model with that")
    config = copy.deepcopy(model.config)
    changed = config.compressor.switched(**switches)
    config.compressor_config = changed.to_dict()
    compressor = _shallow_copy(model.model.compressor)
    compressor.config = changed
    inner = _shallow_copy(model.model)
    inner.config, inner.compressor = config, compressor
    outer = _shallow_copy(model)
    outer.config, outer.model = config, inner
    return outer


def _shallow_copy(module: Module) -> Module:
    """Return a module with the same submodules, which can be replaced without changing the first module."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    return other
