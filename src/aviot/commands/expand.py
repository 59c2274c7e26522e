"""Commands that take a group of options as one parameter."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with one option per field of each parameter that is a dataclass, as typer reads signatures.

    A field's annotation and default are its option's, and the options of a group stand where the group stands:

        @dataclass(frozen=True)
        class ModelOptions:
            model: Model = None
            device: Device = "auto"

        @expand_groups
        def answer(video: VideoPath, *, model: ModelOptions, as_json: Json = False) -> None: ...

    is to typer `answer(video: VideoPath, model: Model = None, device: Device = "auto", as_json: Json = False)`. A call
    makes each group of its values, so a group may check them. Raises ValueError if two options have the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    own = [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(command).parameters.values()
    ]
    options = [option for each in own for option in (_options_of(groups[each.name]) if each.name in groups else [each])]

    @wraps(command)
    def expanded(**values: Any) -> None:
        gathered = {}
        for name, group in groups.items():
            names = [field.name for field in fields(group) if field.name in values]
            gathered[name] = group(**{field: values.pop(field) for field in names})
        command(**values, **gathered)

    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # which typer asks first
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _options_of(group: Any) -> Iterator[inspect.Parameter]:
    """Yield a group's fields as parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(field.name, kind, default=default, annotation=hints[field.name])
