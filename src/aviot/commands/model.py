"""The model that a command uses: what its options chose, checked before torch is imported, and loaded."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.backbones.loading import LoadOptions, without_progress_bars
from aviot.bundled import KNOWS
from aviot.commands.terminal import hints, say
from aviot.utils.machine import check_device_name

if TYPE_CHECKING:
    from aviot.request import Request
    from aviot.session import VideoLM, VideoSession

DEMO_MODEL_ANSWERS = f"{KNOWS}; --model names another."


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model, where it comes from, and how it is loaded; a name of None is the bundled demo model."""

    name: str | Path | None = None
    device: str = "auto"
    options: LoadOptions = field(default_factory=LoadOptions)
    download: bool = False
    revision: str | None = None
    base: Path | None = None  # of an adapter; the recorded one if None
    compile_encoder: bool = False

    @classmethod
    def of(
        cls,
        name: str | Path | None,
        device: str,
        *,
        dtype: str = "auto",
        device_map: str | None = None,
        quantize: Any = None,
        download: bool = False,
        revision: str | None = None,
        base: Path | None = None,
    ) -> "ModelChoice":
        """Return the choice that a command's options make; raise ValueError for a wrong one."""
        check_device_name(device)
        if name is None and (download or revision is not None):
            raise ValueError("--download and --revision are for a model of the hub; name it with --model")
        found = cls(
            name=name,
            device=device,
            options=LoadOptions(dtype, device_map, quantize),
            download=download,
            revision=revision,
            base=base,
        )
        if not download:
            found.folder  # noqa: B018  # refuses a name that is not on this machine
        return found

    @cached_property
    def folder(self) -> Path:
        """The checkpoint's folder; a model of the hub is fetched if that was chosen."""
        if self.name is None:
            return demo_model()
        from aviot.backbones.checkpoints.folder import NotCachedError, is_hub_name, resolve_folder
        from aviot.request import checkpoint_folder

        if Path(self.name).is_dir() or not is_hub_name(self.name):
            return checkpoint_folder(self.name)
        with hints({NotCachedError: "--download"}):
            return checkpoint_folder(resolve_folder(self.name, download=self.download, revision=self.revision))

    @contextmanager
    def reading(self, request: "Request") -> Iterator[dict[str, Any]]:
        """Return the arguments of `VideoLM.open` for a request.

        Its video is read from now on, while torch is imported and the model is loaded, where it is known how.
        """
        from aviot.backbones.ahead import reading_ahead
        from aviot.video.background import BackgroundReading

        known, chosen = reading_ahead(self.folder), request.reading
        if known is None or request.video.is_dir():
            yield chosen
            return
        reader = chosen.pop("reader")
        with BackgroundReading(reader, request.video, **known | chosen) as reading:
            yield chosen | {"reader": reading}

    def open(self, request: "Request", report: Callable[[str], None]) -> "VideoSession":
        """Load the model and open a request's video, once it is known that both can serve the request."""
        from aviot.video.files import check_opens

        check_opens(request.video)
        with self.reading(request) as reading:
            lm = self.load(report)
            lm.backbone.method(request.method)  # refuses one that needs parts which this model does not have
            return lm.open(request.video, report=report, **reading)

    def load(self, report: Callable[[str], None], *, device: str | None = None) -> "VideoLM":
        """Load the model onto its device, or another one."""
        with without_collection():
            return self._load(report, device)

    def _load(self, report: Callable[[str], None], device: str | None) -> "VideoLM":
        from aviot.utils.machine import device_named

        if self.name is None:
            say(DEMO_MODEL_ANSWERS)
        place = device_named(device or self.device)
        os.environ.setdefault("DS_ACCELERATOR", place.type)  # else DeepSpeed, if installed, warns about a missing GPU
        from aviot.session import VideoLM

        with without_progress_bars():
            if self.download:
                report("download")
            folder = self.folder
            report("load")
            return VideoLM.from_pretrained(
                folder,
                device=str(place),
                **asdict(self.options),
                base=self.base,
                compile_encoder=self.compile_encoder,
            )


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause Python's cycle collector while thousands of modules are imported: a fifth of the time, for no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def demo_model() -> Path:
    """Return the directory of the bundled demo model, or raise ValueError with the option that names another."""
    from aviot.bundled import NoDemoModelError, embedded_model

    with hints({NoDemoModelError: "--model"}):
        return embedded_model()
