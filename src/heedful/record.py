"""Listening to a model while it works: `with record(model) as trace:`.

Every activation worth seeing leaves a module of the model, and the dotted path of that module is its name:
`decoder.3.cross.weights` are the attention weights of decoder layer 3 over the source. Nothing is computed for a
listener that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from typing import Any

from torch import Tensor, nn

from heedful.errors import SettingError


class Trace(dict[str, Tensor]):
    """What was recorded, by name; of a module that ran several times, the last."""

    def __missing__(self, name: str) -> Tensor:
        raise KeyError(f"{name} was not recorded; recorded were {', '.join(self) or 'none'}")


@contextmanager
def record(model: nn.Module, *patterns: str) -> Iterator[Trace]:
    """Record the outputs of the modules whose names match `patterns`, attention weights if there are none."""
    patterns = patterns or ("*.weights",)
    trace = Trace()
    names = [name for name, _ in model.named_modules() if any(fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        raise SettingError(f"nothing in the model is called {' or '.join(patterns)}.")
    with ExitStack() as hooks:
        for name in names:
            hooks.enter_context(model.get_submodule(name).register_forward_hook(_keeper(trace, name)))
        yield trace


def _keeper(trace: Trace, name: str) -> Any:
    def keep(module: nn.Module, given: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            trace[name] = result.detach()

    return keep
