"""The methods that the demo model is trained and examined with."""

from typing import Literal

CompressorName = Literal["aviot", "uniform", "segment-mean", "random-tokens", "none"]
