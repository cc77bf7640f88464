"""Option groups: a command takes a dataclass, and Typer sees an option for each of its annotated fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with keyword parameters only: its own, then one for each field of its groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    own = inspect.signature(command).parameters.values()
    parameters = [(parameter, hints) for parameter in own if parameter.name not in groups]
    for group in groups.values():
        types = get_type_hints(group, include_extras=True)  # evaluated where each field is defined
        parameters += [(parameter, types) for parameter in inspect.signature(group).parameters.values()]

    @wraps(command)
    def run(**options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        command(**options)

    run.__annotations__ = {parameter.name: types[parameter.name] for parameter, types in parameters}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[parameter.name])
            for parameter, types in parameters
        ]
    )
    del run.__wrapped__  # or Typer would read the annotations of the command
    return run
