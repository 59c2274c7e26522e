"""`aviot convert`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.model import ModelChoice
from aviot.commands.options import Json
from aviot.commands.terminal import mistakes, say, stderr_console, working
from aviot.utils.printing import SafeProgress


def convert(
    source: Annotated[
        Path, typer.Argument(help="Folder of a published AVIOT or LLaVA-Video checkpoint.", show_default=False)
    ],
    target: Annotated[Path, typer.Argument(help="Folder to write, which must not exist yet.", show_default=False)],
    decoder: Annotated[
        bool, typer.Option("--decoder", help="Write the decoder alone, of any supported family, for a vLLM server.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Convert a published checkpoint to this package's layout, with one shard in memory at a time.

    With --decoder, write a checkpoint's decoder and tokenizer as a language model that vLLM serves on prompt
    embeddings. With --json: source, target, the source's layout, and the number of shards, tensors and bytes written.

    Example: aviot convert LLaVA-Video-7B-Qwen2 aviot-start
    """
    if decoder:
        _convert_decoder(source, target, as_json=as_json)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    silent = not sys.stderr.isatty()
    with mistakes(), SafeProgress(*columns, console=stderr_console(), transient=True, disable=silent) as progress:
        from aviot.request import checkpoint_folder

        checkpoint_folder(source)
        from aviot.backbones.llava_video.conversion import convert_checkpoint, describe_conversion

        task = progress.add_task("shards", total=None)
        for done, total in convert_checkpoint(source, target):
            progress.update(task, completed=done, total=total)
        written = describe_conversion(source, target)
    if as_json:
        print(json.dumps(asdict(written), indent=2))
        return
    say(f"wrote {target}")


def _convert_decoder(source: Path, target: Path, *, as_json: bool) -> None:
    with mistakes(), working() as report:
        chosen = ModelChoice.of(source, "cpu")
        if target.exists():
            raise ValueError(f"{target} exists; name a new folder")
        lm = chosen.load(report)
        from aviot.engine.decoder_folder import decoder_config, save_decoder

        report("write")
        save_decoder(lm.backbone.model, lm.backbone.tokenizer, target)
        config = decoder_config(lm.backbone.model)
    written = {"source": str(source), "target": str(target), "dtype": config["dtype"]}
    if as_json:
        print(json.dumps(written | {"architecture": config["architectures"][0]}, indent=2))
        return
    say(f"wrote {target}: {config['architectures'][0]}, {config['dtype']}")
