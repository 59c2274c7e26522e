"""Encoder features on disk, for the time after a restart and for several servers with one folder."""

import hashlib
import json
import logging
from collections.abc import Hashable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from aviot.backbones.base import EncodedVideo
from aviot.data.feature_cache import CachedVideo, FeatureCache, fingerprint
from aviot.explain.pictures import Pictures
from aviot.methods.features import Structure
from aviot.serve.opened import Opened
from aviot.session import VideoLM
from aviot.video.worker import InvalidReply, describe_video, rebuild_video

logger = logging.getLogger(__name__)

VERSION = 1
"""Version of what is stored; increment it when it changes, so that older files are not used."""

META, FRAMES, PICTURES, EXTRA = "meta", "frames", "pictures", "extra."


class FeatureDisk:
    """A folder of opened videos, bounded in bytes; files of other models are not used.

    A model is known by its settings and by its weights, all but the decoder's, which are hashed once.
    """

    def __init__(self, lm: VideoLM, folder: Path, max_bytes: int) -> None:
        self.lm = lm
        self._files = FeatureCache(folder, max_bytes)
        backbone = lm.backbone
        settings = settings_fingerprint(backbone.name_or_path)
        self._model = [VERSION, backbone.family, settings, encoder_fingerprint(backbone.model)]

    def get(self, key: Hashable) -> Opened | None:
        """Return a stored video; None if there is none, or it is damaged."""
        found = self._files.get(self._name(key))
        if found is None:
            return None
        try:
            return self._restored(found)
        except (InvalidReply, KeyError, TypeError, ValueError, RuntimeError) as error:
            logger.warning("stored features cannot be used (%s) and are computed again", type(error).__name__)
            return None

    def put(self, key: Hashable, opened: Opened) -> None:
        """Store a video; a full or unwritable disk is logged and does no other harm."""
        encoded = opened.session.encoded
        pictures = () if opened.thumbnails is None else opened.thumbnails.images
        meta = {
            "video": describe_video(encoded.video),
            "grid": encoded.grid,
            "tokens_per_frame": encoded.tokens_per_frame,
            "structure": asdict(encoded.structure),
            "size": None if opened.thumbnails is None else opened.thumbnails.size,
            "pictures": [picture.size for picture in pictures],
        }
        extras = {f"{EXTRA}{name}": tensor for name, tensor in encoded.extras.items()}
        extras |= {
            META: _as_bytes(json.dumps(meta).encode()),
            FRAMES: torch.as_tensor(np.asarray(encoded.video.frames)),
            PICTURES: _as_bytes(b"".join(picture.tobytes() for picture in pictures)),
        }
        video = encoded.video
        self._files.put(self._name(key), CachedVideo(encoded.features, encoded.times, video.duration, extras))

    def _name(self, key: Hashable) -> str:
        return hashlib.sha256(json.dumps([self._model, key]).encode()).hexdigest()

    def _restored(self, found: CachedVideo) -> Opened:
        meta: dict[str, Any] = json.loads(found.extras[META].numpy().tobytes())
        video = rebuild_video(meta["video"], found.extras[FRAMES].numpy().reshape(-1))
        device = self.lm.backbone.device
        extras = {
            name.removeprefix(EXTRA): tensor.to(device)
            for name, tensor in found.extras.items()
            if name.startswith(EXTRA)
        }
        rows, columns = meta["grid"]
        encoded = EncodedVideo(
            video=video,
            features=found.features.to(device),
            grid=(rows, columns),
            tokens_per_frame=meta["tokens_per_frame"],
            times=found.times,
            extras=extras,
            structure=Structure(**meta["structure"]),
        )
        return Opened(self.lm.resume(encoded), _pictures(meta, found.extras[PICTURES].numpy().tobytes()))


def settings_fingerprint(folder: str) -> str:
    """Return the hash of a checkpoint's settings, of the sampling and scaling of videos among others."""
    found = sorted(Path(folder).glob("*.json")) if folder else []
    parts = [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in found]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def encoder_fingerprint(model: Any) -> str:
    """Return the hash of all weights of a model but its decoder's."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    owned = {id(weight) for weight in decoder.parameters()} if isinstance(decoder, nn.Module) else set()
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return fingerprint({name: one for name, one in weights.items() if id(one) not in owned and not one.is_meta})


def _as_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def _pictures(meta: dict[str, Any], data: bytes) -> Pictures | None:
    if meta["size"] is None:
        return None
    images, at = [], 0
    for width, height in meta["pictures"]:
        end = at + 3 * width * height
        images.append(Image.frombytes("RGB", (width, height), data[at:end]))
        at = end
    width, height = meta["size"]
    return Pictures(tuple(images), (width, height))
