"""Training an adapter: the base model and what to start from, checked before weights are read, then loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText

from aviot.backbones.base import Backbone
from aviot.backbones.checkpoints.adapter import Adapter, BaseModel, is_adapter, weights_digest
from aviot.backbones.checkpoints.folder import CheckpointError, resolve_folder
from aviot.backbones.checkpoints.lora import LoraSettings, require_peft
from aviot.backbones.huggingface.backbone import HuggingFaceBackbone
from aviot.backbones.loading import without_progress_bars
from aviot.backbones.registry import families, family_of
from aviot.config import SWITCHES, CompressorConfig
from aviot.request import checkpoint_folder
from aviot.training.adapted_data import FamilyProcessor
from aviot.training.adapted_model import AdaptedModel
from aviot.training.config import TrainingConfig
from aviot.training.config_files import Parallelism
from aviot.training.model_setup import feature_dtype
from aviot.video import Video
from aviot.video.sampling import Sampling


@dataclass(frozen=True)
class StartingModel:
    """The model that a run starts from: its folder, its family, and the adapter that is trained further, if any."""

    base: Path
    family: type[Backbone]
    adapter: Path | None = None

    @classmethod
    def of(cls, config: TrainingConfig) -> "StartingModel":
        """Read the small files of `config.model`: a checkpoint, or an adapter whose base is on this machine."""
        folder = checkpoint_folder(config.model)
        if not is_adapter(folder):
            return cls(folder, family_of(folder))
        base = resolve_folder(Adapter.read(folder).base.path)
        return cls(base, family_of(base), folder)

    @property
    def writes_adapters(self) -> bool:
        """Return whether checkpoints are adapters, rather than whole models."""
        return self.family.trained == "adapter"

    def digest(self) -> str:
        """Return the digest of the base's weights, after comparing it with the adapter's base."""
        if self.adapter is not None:
            Adapter.read(self.adapter).check_base(self.adapter, self.base, self.family.family)
        return weights_digest(self.base)


def check_trainable(config: TrainingConfig, parallelism: Parallelism) -> StartingModel:
    """Refuse what cannot be trained, before any weights are read; returns what the run starts from."""
    source = StartingModel.of(config)
    family = source.family.family
    if source.family.trained is None:
        trained = ", ".join(each.family for each in families() if each.trained is not None)
        raise ValueError(f"models of {family} cannot be trained; model must be of one of {trained}")
    if config.lora is not None:
        require_peft()
    if not source.writes_adapters:
        if others := sorted(set(config.compressor or {}) - set(SWITCHES)):
            raise ValueError(
                f"compressor must be left out, but for its switches ({', '.join(SWITCHES)}): {config.model} has a "
                f"compressor with settings of its own; got {', '.join(others)}"
            )
        return source
    if config.stage == "joint" and config.lora is None:
        raise ValueError(
            f'stage "joint" would train all weights of a {family} model, which is supported for LLaVA-Video alone; add '
            "lora: {} to train low-rank adapters and AVIOT's parts, or set stage: compressor for AVIOT's parts alone"
        )
    if parallelism.kind != "replicas":
        raise ValueError(
            f"{parallelism.name} is not supported for {family} models, whose weights are frozen; set parallelism=null"
        )
    _check_start(config, source)
    if config.lora is not None:
        _check_targets(config.lora, source)
    return source


def _check_start(config: TrainingConfig, source: StartingModel) -> None:
    """Refuse settings that contradict an adapter that is trained further."""
    if source.adapter is None:
        return
    adapter = Adapter.read(source.adapter)
    if config.compressor is not None:
        raise ValueError(f"compressor must be left out: {source.adapter} has a compressor with settings of its own")
    if adapter.lora not in (None, config.lora):
        raise ValueError(
            f"{source.adapter} has low-rank adapters with other settings than lora; give lora the same settings "
            f"({adapter.lora}), or start from its base model {source.base}"
        )


def _check_targets(settings: LoraSettings, source: StartingModel) -> None:
    """Refuse names that no linear layer of the decoder has; the model is built without memory for its weights."""
    try:
        config = AutoConfig.from_pretrained(source.base, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            decoder = AutoModelForImageTextToText.from_config(config, trust_remote_code=False).get_decoder()
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise CheckpointError(f"{source.base}: its config.json cannot be read ({error})") from error
    layers = {name.rpartition(".")[2] for name, layer in decoder.named_modules() if isinstance(layer, nn.Linear)}
    usual = set(LoraSettings().targets)  # a family may lack some of these
    unknown = [target for target in settings.targets if target.rpartition(".")[2] not in layers | usual]
    if unknown or not layers & {target.rpartition(".")[2] for target in settings.targets}:
        raise ValueError(
            f"lora.targets must name linear layers of the decoder, which are {', '.join(sorted(layers))}; got "
            f"{', '.join(unknown or settings.targets)}"
        )


def load_adapted(
    config: TrainingConfig, source: StartingModel, digest: str, checkpoint: Path | None
) -> tuple[AdaptedModel, FamilyProcessor]:
    """Load the base, frozen, in `feature_dtype`, and add AVIOT's parts and low-rank adapters, in float32.

    They start untrained, or from the adapter in `config.model`, or from a checkpoint of the run.
    """
    torch.manual_seed(config.seed)
    with without_progress_bars():
        backbone = source.family.load(source.base, torch.device("cpu"))
    assert isinstance(backbone, HuggingFaceBackbone)  # of the families that write adapters
    for weight in backbone.model.parameters():
        weight.data = weight.data.to(feature_dtype(config))
    start = checkpoint or source.adapter
    model = AdaptedModel(backbone, _adapter(config, source, digest, backbone.width))
    if start is not None:
        model.load(start)
    if checkpoint is not None:
        model.reconfigure(Adapter.read(checkpoint).compressor)  # a threshold that training has moved
    if config.gradient_checkpointing:
        model.decoder.gradient_checkpointing_enable({"use_reentrant": False})
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
    return model, FamilyProcessor(backbone, config.video.fps, config.video.max_frames, _square_tokens(backbone))


def _adapter(config: TrainingConfig, source: StartingModel, digest: str, width: int) -> Adapter:
    """Return the file that checkpoints of the run will have."""
    base = BaseModel(str(source.base.absolute()), source.family.family, digest)
    sampling = Sampling(config.video.fps, config.video.max_frames)
    if source.adapter is not None:
        return replace(Adapter.read(source.adapter), base=base, sampling=sampling, lora=config.lora)
    chosen: Mapping[str, Any] = config.compressor or {}
    compressor = CompressorConfig.from_dict({**chosen, "dim": width})
    return Adapter(base=base, compressor=compressor, sampling=sampling, lora=config.lora)


@torch.no_grad()
def _square_tokens(backbone: HuggingFaceBackbone) -> int | None:
    """Return the number of tokens of a frame, measured with a black one; None if it depends on the video."""
    size = backbone.scaling().size
    if size is None:
        return None
    video = Video(np.zeros((1, *size, 3), np.uint8), (0,), (0.0,), 1.0, 1.0, 1, "")
    return backbone.encode_each([video])[0].features.shape[1]
