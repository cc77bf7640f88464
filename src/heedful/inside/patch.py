"""Interventions: replace activations (activation patching) or ablate attention heads.

with patch(model, {"decoder.1.cross.weights": uniform}):
    ...
with heads_off(model, [Head.parse("decoder.1.cross.3")]):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.errors import SettingError
from heedful.inference.record import activation_names, module_of
from heedful.model.attention.multi_head import Attention

Change = Callable[[Tensor], Tensor] | Tensor | float


class Head(NamedTuple):
    """One attention head, counted from 0 like its layer: `decoder.1.cross.3`."""

    stack: str
    layer: int
    kind: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Head:
        try:
            stack, layer, kind, number = text.split(".")
            return cls(stack, int(layer), kind, int(number))
        except ValueError:
            raise SettingError(f"{text!r} is no head; a head looks like decoder.1.cross.3.") from None

    @property
    def attention(self) -> str:
        return f"{self.stack}.{self.layer}.{self.kind}"

    def __str__(self) -> str:
        return f"{self.attention}.{self.number}"


def heads(model: Any) -> list[Head]:
    """Every head of a model, encoder first."""
    all_heads = []
    for name, module in module_of(model).named_modules():
        if isinstance(module, Attention):
            stack, layer, kind = name.split(".")
            all_heads += [Head(stack, int(layer), kind, number) for number in range(module.n_heads)]
    return all_heads


@contextmanager
def patch(model: Any, changes: Mapping[str, Change]) -> Iterator[None]:
    """Replace activations by name: with a function of the activation, a tensor that broadcasts to it, or a number."""
    module = module_of(model)
    known = activation_names(module)
    with ExitStack() as stack:
        for name, change in changes.items():
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else "; heedful.inside.activation_names lists them all."
                raise SettingError(f"nothing in the model is called {name}{hint}")
            stack.enter_context(module.get_submodule(name).register_forward_hook(_changer(change)))
        yield


@contextmanager
def heads_off(model: Any, off: Iterable[Head]) -> Iterator[None]:
    """Ablate these heads: their outputs become zero."""
    known, layers = set(heads(model)), dict[str, list[int]]()
    for head in off:
        if head not in known:
            raise SettingError(f"the model has no head {head}; its last is {max(known, key=heads(model).index)}.")
        layers.setdefault(f"{head.attention}.heads", []).append(head.number)
    with patch(model, {name: _without(numbers) for name, numbers in layers.items()}):
        yield


def _without(numbers: list[int]) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        """(R, H, T, d) -> (R, H, T, d)."""
        x = x.clone()
        x[:, numbers] = 0
        return x

    return change


def _changer(change: Change) -> Any:
    def hook(module: nn.Module, inputs: Any, result: Tensor) -> Tensor:
        if callable(change) and not isinstance(change, Tensor):
            return change(result)
        new = change.to(result) if isinstance(change, Tensor) else result.new_tensor(change)
        return new.expand_as(result)

    return hook
