"""Checkpoint folders of all three layouts to mutate, and what loading one must lead to: finite logits, or an error."""

import shutil
import sys
from pathlib import Path
from typing import Any

from fuzz.target import Refused, plain_errors, require

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden" / "checkpoint"
LAYOUTS = ("aviot", "published", "llava-video")
MODULES = (
    *("aviot.models", "aviot.session", "aviot.video.read", "safetensors.torch"),
    *("transformers.models.qwen2.modeling_qwen2", "transformers.models.siglip.modeling_siglip"),
    *("transformers.models.auto.tokenization_auto", "transformers.models.qwen2.tokenization_qwen2"),
)
FRAMES = 6


def prepare(sources: Path) -> None:
    """Write a tiny checkpoint of each layout."""
    sys.path[:0] = [str(TESTS / "training"), str(TESTS / "models")]
    import torch
    from test_checkpoints import Llava, write_llava
    from tiny import make_start

    make_start(sources / "aviot")
    shutil.copytree(GOLDEN, sources / "published", ignore=shutil.ignore_patterns("expected.*"))
    torch.manual_seed(0)
    write_llava(sources / "llava-video", Llava())


def control(sources: Path, folder: Path) -> None:
    """Copy a checkpoint as it is."""
    copy_layout(sources, folder, "aviot")


def copy_layout(sources: Path, folder: Path, layout: str) -> Path:
    """Copy the checkpoint of a layout into a case's folder."""
    return shutil.copytree(sources / layout, folder / "checkpoint")


def check_checkpoint(folder: Path, compressors: tuple[str, ...] = ("aviot", "none")) -> str:
    """Load a checkpoint and ask it; raise CheckpointError if it is refused, Broken if its logits are not finite."""
    import torch

    from aviot.models import AviotForConditionalGeneration, AviotProcessor

    processor = AviotProcessor.from_pretrained(folder)
    model = AviotForConditionalGeneration.from_pretrained(folder).eval()
    shades = torch.arange(FRAMES * 20 * 20 * 3).reshape(FRAMES, 20, 20, 3).remainder(251).to(torch.uint8)
    for compressor in compressors:
        with plain_errors():
            _ask(model, processor, shades, compressor)
    return "answered"


def _ask(model: Any, processor: Any, frames: Any, compressor: str) -> None:
    """Ask as `aviot answer` does; an answer that is given must come from finite logits."""
    import torch

    from aviot import VideoLM

    question = "What is it?"
    sampling = {"source_fps": 2.0}
    answer = VideoLM(model, processor).open(frames, **sampling).ask(question, method=compressor, max_new_tokens=2)
    require(isinstance(answer.text, str) and answer.tokens_after >= 1, f"the answer is {answer!r:.200}")
    batch = processor(frames, question, **sampling)
    with torch.inference_mode():
        logits = model(**batch, compressor=compressor, logits_to_keep=1).logits
    require(bool(torch.isfinite(logits).all()), f"{compressor} answered from logits that are not finite")


def errors() -> tuple[type[Exception], ...]:
    """Return what a checkpoint that cannot be loaded or asked raises."""
    from aviot.backbones.checkpoints.shards import CheckpointError

    return CheckpointError, Refused
