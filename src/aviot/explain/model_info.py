"""Which model answers, and whether it can know the video that it is asked about."""

from dataclasses import dataclass
from pathlib import Path

from aviot.backbones.base import Backbone
from aviot.bundled import FOREIGN, NAME, is_drawn, is_embedded
from aviot.video import Video

UNNAMED = "unnamed model"  # made in memory, not loaded from a folder
_HUB_CACHE = "models--"  # begins the folder of a model in Hugging Face's cache, above `snapshots/REVISION`


@dataclass(frozen=True)
class ModelInfo:
    """The model behind an answer: its name, its size, and whether it is the bundled demo model."""

    name: str
    parameters: int
    layers: int  # of the decoder
    width: int  # of the decoder
    bundled: bool

    @staticmethod
    def of(backbone: Backbone) -> "ModelInfo":
        """Describe a loaded model."""
        folder = Path(backbone.name_or_path).absolute() if backbone.name_or_path else None
        bundled = folder is not None and is_embedded(folder)
        return ModelInfo(
            name=NAME if bundled else _folder_name(folder),
            parameters=sum(weight.numel() for weight in backbone.model.parameters()),
            layers=backbone.decoder.layers,
            width=backbone.decoder.width,
            bundled=bundled,
        )

    @property
    def facts(self) -> str:
        """The model's size in one phrase."""
        size = f"{self.parameters / 1e9:.1f} B" if self.parameters >= 1e9 else f"{self.parameters / 1e6:.1f} M"
        return f"{size} parameters, decoder of {self.layers} layers, {self.width} wide"

    def notice(self, video: Video) -> str | None:
        """Return the warning that belongs to every answer about a video (damage, a foreign world), or None."""
        damaged = None if video.damage is None else f"The video is damaged: {video.damage}."
        return " ".join(filter(None, (damaged, self.foreign(video)))) or None

    def foreign(self, video: Video) -> str | None:
        """Return the warning that the model cannot know the video, or None.

        The bundled model has seen nothing but its procedural world. Only files that this package drew say that they
        are of it (`aviot.bundled.is_drawn`); all other files, folders of images and arrays count as foreign.
        """
        return FOREIGN if self.bundled and not is_drawn(video.comment) else None


def _folder_name(folder: Path | None) -> str:
    if folder is None:
        return UNNAMED
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith(_HUB_CACHE):
        return folder.parents[1].name.removeprefix(_HUB_CACHE).replace("--", "/")
    return folder.name or str(folder)
