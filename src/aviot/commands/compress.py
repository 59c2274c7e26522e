"""`aviot compress`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.expand import expand_groups
from aviot.commands.groups import FixedBudget, ModelOptions, ReadingOptions
from aviot.commands.options import Json, MethodOption, Question, VideoPath, describe
from aviot.commands.terminal import counted, mistakes, say, working
from aviot.methods.registry import DEFAULT

if TYPE_CHECKING:
    from aviot.session import ConditionedVideo


@expand_groups
def compress(
    video: VideoPath,
    question: Question,
    output: Annotated[Path, typer.Option("--output", "-o", help="Safetensors file to write.", show_default=False)],
    *,
    model: ModelOptions,
    budget: FixedBudget,
    method: MethodOption = DEFAULT,
    reading: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Write a video's compressed features and their provenance.

    The file has `features` [K,S,D] and `coefficients` [K,S,T] if the method mixes whole frames, and `tokens`,
    `positions`, `indices` and `weights` otherwise. Its metadata has question, name, duration, times, path and budgets
    as JSON under `aviot`.

    Example: aviot compress cooking.mp4 -q "What is being cooked?" -o cooking.safetensors --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.request import Request, check_compresses
        from aviot.utils.files import check_outputs_differ

        request = Request(
            video=video,
            questions=[question],
            budget=budget.chosen,
            method=method,
            device=model.device,
            **reading.arguments,
        )
        chosen = model.choice()
        check_outputs_differ({"the features": output}, video)
        check_compresses(method)
        session = chosen.open(request, report)
        from aviot.answers import save_compression

        made = session.compress(question, budget=request.fixed_budget, method=method)
        save_compression(output, session.video, made)
    if as_json:
        described = describe(request, session) | {"question": question, "file": str(output)} | _shapes(made)
        print(json.dumps(described | {"milliseconds": session.opening_milliseconds}, indent=2))
        return
    compression = made.made.compression
    count = len(made.made) if compression is None else len(compression.features)
    what = counted(count, "token" if compression is None else "support")
    say(f"{output}: {counted(len(session.video), 'frame')} as {what}")


def _shapes(made: "ConditionedVideo") -> dict[str, Any]:
    """Return the shapes of the file's tensors as JSON data."""
    compression = made.made.compression
    if compression is None:
        return {"tokens": list(made.made.tokens.shape)}
    return {
        "features": list(compression.features.shape),
        "path": compression.path,
        "budgets": compression.budgets,
    }
