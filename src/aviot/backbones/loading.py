"""Options for loading a checkpoint's weights: their type, the devices they are spread over, and quantisation."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import torch  # not needed to check options

Quantization = Literal["4bit", "8bit"]
QUANTIZATIONS = get_args(Quantization)
AUTO = "auto"
DTYPES = (AUTO, "float32", "bfloat16", "float16")
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


@dataclass(frozen=True)
class LoadOptions:
    """Options of loading that have a default in the checkpoint; checked when they are made, without torch.

    `dtype` of auto is the checkpoint's own. `device_map` spreads a model over devices: a strategy of accelerate, or the
    device (a number, a name, cpu or disk) of each module by name. `quantization` is done by bitsandbytes while loading.
    """

    dtype: str = AUTO
    device_map: str | Mapping[str, int | str] | None = None
    quantization: Quantization | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", str(self.dtype).removeprefix("torch."))
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.quantization is not None and self.quantization not in QUANTIZATIONS:
            raise ValueError(f"quantization must be one of {', '.join(QUANTIZATIONS)}, got {self.quantization!r}")
        if isinstance(self.device_map, str) and self.device_map not in DEVICE_MAPS:
            raise ValueError(
                f"device_map must be one of {', '.join(DEVICE_MAPS)}, or give the device of each module, got "
                f"{self.device_map!r}"
            )

    @property
    def torch_dtype(self) -> "torch.dtype | None":
        """The chosen type; None stands for the checkpoint's."""
        import torch

        return None if self.dtype == AUTO else getattr(torch, self.dtype)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "LoadOptions":
        """Return the options of a record, which may have other entries."""
        return cls(record.get("dtype", AUTO), quantization=record.get("quantization"))

    @property
    def recorded(self) -> dict[str, str]:
        """The options that decide an answer, for records: those that were given, without the devices."""
        given = {"dtype": self.dtype, "quantization": self.quantization}
        return {name: value for name, value in given.items() if value not in (None, AUTO)}


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Turn transformers' progress bars off while weights are loaded, and back to what they were."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
