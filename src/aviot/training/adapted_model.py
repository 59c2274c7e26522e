"""A Hugging Face model with frozen weights, in training: AVIOT's parts and low-rank adapters get the gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig

from aviot.backbones.base import CompressionRequest, EncodedVideo, check_length
from aviot.backbones.checkpoints.adapter import PARTS_FILE, Adapter
from aviot.backbones.checkpoints.lora import inject, is_adapter_weight, save_adapters
from aviot.backbones.huggingface.adapters import load_adapters, load_parts, new_parts
from aviot.backbones.huggingface.backbone import HuggingFaceBackbone
from aviot.backbones.huggingface.placing import IGNORED
from aviot.backbones.llava_video.modeling import AviotOutput
from aviot.config import CompressorConfig
from aviot.data import Clip
from aviot.methods.aviot import Compression
from aviot.methods.aviot.numerics import idle
from aviot.training.adapted_data import FamilyConversation
from aviot.video import Video

PARTS, BASE = "parts.", "base."  # prefixes of the names of weights
GRID, TIMES = "grid", "times"  # names of what is stored with cached features


class AdaptedConfig(PreTrainedConfig):
    """The configuration that the Trainer reads: the compressor and the weight of its objective."""

    model_type = "aviot-adapter"

    def __init__(self, compressor: Mapping[str, Any] | None = None, transport_loss_weight: float = 1.0) -> None:
        super().__init__()
        self.compressor_config = dict(compressor or {})
        self.transport_loss_weight = transport_loss_weight

    @property
    def compressor(self) -> CompressorConfig:
        """The compressor's config as an object."""
        return CompressorConfig.from_dict(self.compressor_config)


class AdaptedModel(nn.Module):
    """A backbone whose model is frozen, with AVIOT's parts and, if `adapter.lora` is given, low-rank adapters.

    It computes the losses that the LLaVA-Video model computes in training. The encoder runs in evaluation mode and
    without autocast, as it does when questions are answered.
    """

    def __init__(self, backbone: HuggingFaceBackbone, adapter: Adapter) -> None:
        super().__init__()
        self.backbone, self.adapter = backbone, adapter
        self.base: Any = backbone.model.requires_grad_(False)
        if adapter.lora is not None:
            inject(self.decoder, adapter.lora)
        self.parts = nn.ModuleDict(new_parts(adapter.compressor))
        backbone.install(dict(self.parts.items()))
        self.config = AdaptedConfig(adapter.compressor.to_dict(), adapter.transport_loss_weight)

    def reconfigure(self, compressor: CompressorConfig) -> None:
        """Use other constants of the compressor, with the same weights, from now on and in checkpoints."""
        self.parts["compressor"].config = compressor  # type: ignore[assignment]
        self.adapter = replace(self.adapter, compressor=compressor)
        self.config.compressor_config = compressor.to_dict()

    @property
    def decoder(self) -> Any:
        """The language model."""
        return self.base.get_decoder()

    def load(self, folder: Path) -> None:
        """Load an adapter's weights; without low-rank adapters in it, those of this model stay as they are."""
        load_parts(folder, self.parts)
        if Adapter.read(folder).lora is not None:
            load_adapters(folder, self.decoder)

    def train(self, mode: bool = True) -> "AdaptedModel":
        """Set the mode of what is trained and of the decoder, whose activations may be recomputed."""
        super().train(mode)
        self.base.eval()
        self.decoder.train(mode)
        return self

    def forward(
        self,
        clips: Sequence[Clip],
        conversations: Sequence[FamilyConversation],
        ratio: Sequence[float],
        *,
        step: int | None = None,
        logits_to_keep: int | None = None,
        **options: Any,
    ) -> AviotOutput:
        """Return losses, compressions and encoded videos of a batch; the logits are those of the last tokens.

        `logits_to_keep` of None: from the first supervised token's predecessor on. Other `options` are the decoder's.
        """
        encoded = [self.encoded(clip) for clip in clips]
        prompts = [
            self.backbone.conversation(each.turns, one.video, system=each.system, number=number)
            for number, (each, one) in enumerate(zip(conversations, encoded, strict=True))
        ]
        videos = self.backbone.compress_each(encoded, prompts, CompressionRequest(list(ratio), step=step))
        inputs, labels = self.backbone.place_each(prompts, videos)
        check_length(inputs.length, 0, self.backbone.max_length)
        arguments = inputs.arguments
        arguments.setdefault("position_ids", (arguments["attention_mask"].cumsum(-1) - 1).clamp_min(0))
        hidden = self.base.model(**arguments, use_cache=False, **options)[0]
        keep = _from_first_supervised(labels) if logits_to_keep is None else logits_to_keep
        logits = self.base.get_output_embeddings()(hidden[:, -keep:])
        vocabulary = logits.shape[-1]
        lm_loss = self.base.loss_function(logits=logits, labels=labels[:, -keep:], vocab_size=vocabulary)
        compressions = [cast(Compression, video.made.compression) for video in videos if video.made is not None]
        transport = torch.stack([compression.loss for compression in compressions]).mean()
        lm_loss = lm_loss + idle(self.parameters(), self.backbone.device)  # a short video does not use all of them
        loss = lm_loss + self.config.transport_loss_weight * transport
        return AviotOutput(
            loss=loss,
            logits=logits,
            lm_loss=lm_loss,
            transport_loss=transport,
            compressions=compressions,
            encoded=encoded,
        )

    @torch.no_grad()
    def encoded(self, clip: Clip) -> EncodedVideo:
        """Return a clip's encoded video: from its cached features, or by the encoder."""
        if clip.features is None:
            assert clip.pixels is not None  # a clip has one of the two
            with torch.autocast(self.backbone.device.type, enabled=False):
                return self.backbone.encode_each([video_of(clip)])[0]
        device = self.backbone.device
        extras = {name: each.to(device) for name, each in clip.extras.items() if name not in (GRID, TIMES)}
        rows, columns = clip.extras[GRID].tolist()
        times = tuple(clip.extras[TIMES].tolist())
        return EncodedVideo(video_of(clip), clip.features.to(device), (rows, columns), times=times, extras=extras)

    def save_pretrained(self, folder: Path, state_dict: Mapping[str, Tensor]) -> None:
        """Write what was trained, and the file that identifies the base."""
        parts = {
            name.removeprefix(PARTS): tensor.detach().contiguous()
            for name, tensor in state_dict.items()
            if name.startswith(PARTS)
        }
        save_file(parts, folder / PARTS_FILE, metadata={"format": "pt"})
        adapter = self.adapter
        if adapter.lora is not None:
            (prefix,) = {name for name, module in self.named_modules() if module is self.decoder}
            weights = {
                name.removeprefix(f"{prefix}."): tensor
                for name, tensor in state_dict.items()
                if is_adapter_weight(name)
            }
            save_adapters(folder, weights, adapter.lora, adapter.base.path)
        adapter.write(folder)


def stored_with(encoded: EncodedVideo, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return what has to be cached beside a video's features."""
    extras = {name: extra.to(dtype) for name, extra in encoded.extras.items()}
    return extras | {GRID: torch.tensor(encoded.grid), TIMES: torch.tensor(encoded.times, dtype=torch.float64)}


def video_of(clip: Clip) -> Video:
    """Return a clip as a sampled video; its frames are missing if its features are cached."""
    frames = np.empty((0, 0, 0, 3), np.uint8) if clip.pixels is None else clip.pixels.numpy()
    count = len(clip)
    return Video(frames, tuple(range(count)), clip.times, clip.duration, 1.0, count, "")


def _from_first_supervised(labels: Tensor) -> int:
    """Return the number of last positions that predict supervised tokens, or follow the first of them."""
    supervised = (labels != IGNORED).any(0).nonzero()
    first = int(supervised[0]) if len(supervised) else labels.shape[1] - 1
    return labels.shape[1] - first + 1
