"""Groups of options that commands share, which `expand_groups` makes options of, and what commands need of them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.budget import AutoBudget, Budget, parse_budget
from aviot.commands.model import ModelChoice
from aviot.commands.options import (
    Base,
    BudgetText,
    ChoiceInstruction,
    DecoderOption,
    Device,
    DeviceMap,
    Download,
    Dtype,
    Fps,
    Frames,
    Keep,
    MaxFrames,
    Model,
    ModelRatio,
    OpenInstruction,
    Quantize,
    ReadTimeout,
    Revision,
    SamplingModeOption,
    SourceFps,
)
from aviot.video.checks import DEFAULT_LIMITS, ReadLimits

if TYPE_CHECKING:
    from aviot.evaluation.item import Instructions


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A model, where it comes from, and how its weights are loaded."""

    model: Model = None
    base: Base = None
    download: Download = False
    revision: Revision = None
    device: Device = "auto"
    dtype: Dtype = "auto"
    device_map: DeviceMap = None
    quantize: Quantize = None

    def choice(self) -> ModelChoice:
        """Return the model to load; raise ValueError for options that cannot be, before torch is imported."""
        return ModelChoice.of(
            self.model,
            self.device,
            dtype=self.dtype,
            device_map=self.device_map,
            quantize=self.quantize,
            download=self.download,
            revision=self.revision,
            base=self.base,
        )

    @property
    def served_name(self) -> str:
        """The name that a server gives the model: its folder's, or the package's for the bundled demo model."""
        return "aviot" if self.model is None else Path(self.model).resolve().name


@dataclass(frozen=True, kw_only=True)
class FixedBudget:
    """A budget of commands that compress without an answer that could choose it."""

    ratio: ModelRatio = None
    keep: Keep = None

    @property
    def chosen(self) -> Budget | None:
        """The budget that the options select; None stands for the checkpoint's own."""
        if self.ratio is not None and self.keep is not None:
            raise ValueError("give --ratio or --keep, not both")
        if self.keep is not None:
            return Budget(keep=self.keep)
        return None if self.ratio is None else Budget(ratio=self.ratio)


@dataclass(frozen=True, kw_only=True)
class AnswerBudget:
    """A budget of commands that answer, which may be automatic."""

    ratio: ModelRatio = None
    keep: Keep = None
    budget: BudgetText = None

    @property
    def chosen(self) -> Budget | AutoBudget | None:
        """The budget that the options select; None stands for the checkpoint's own."""
        if self.budget is None:
            return FixedBudget(ratio=self.ratio, keep=self.keep).chosen
        if self.ratio is not None or self.keep is not None:
            raise ValueError("give one of --ratio, --keep and --budget")
        return parse_budget(self.budget)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """The frames of a video that are read, and the time that reading may take; named as `Request` names them."""

    fps: Fps = None
    max_frames: MaxFrames = None
    frames: Frames = None
    source_fps: SourceFps = None
    sampling_mode: SamplingModeOption = "times"
    read_timeout: ReadTimeout = DEFAULT_LIMITS.seconds

    @property
    def limits(self) -> ReadLimits:
        """The time limit of reading one video."""
        return ReadLimits(seconds=self.read_timeout)

    @property
    def given(self) -> dict[str, Any]:
        """The sampling that was chosen, as arguments of `read_video`; the rest is the checkpoint's own."""
        from aviot.request import given_sampling

        return given_sampling(self)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(SamplingOptions):
    """The frames of a video that are read in this process, how, and the time that it may take."""

    decoder: DecoderOption = "auto"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Request` that the options stand for."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class InstructionOptions:
    """The instructions that follow a question."""

    choice_instruction: ChoiceInstruction = None
    open_instruction: OpenInstruction = None

    @property
    def given(self) -> dict[str, str]:
        """The instructions that were given, by the name of their field in `Instructions`."""
        both = {"choice": self.choice_instruction, "open": self.open_instruction}
        return {name: text for name, text in both.items() if text is not None}

    def instructions(self) -> "Instructions":
        """Return the instructions, with the evaluation's own for those that were not given."""
        from aviot.evaluation.item import Instructions

        return Instructions(**self.given)
