"""Maps the tensors of a foreign architecture to heedful's: one table, used in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import FolderError, quote
from heedful.interop.weight_files import ForeignWeights
from heedful.storage.module_weights import all_finite

OFFSET = 2  # unused rows of BART's position tables
Shapes = Mapping[str, tuple[int, ...]]


class WeightMapping(NamedTuple):
    """heedful's tensors that one foreign tensor holds: concatenated along the first axis, then in this form."""

    targets: tuple[str, ...]
    form: Literal["same", "transposed", "row", "offset"] = "same"  # offset: unused rows stand before the others

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape of the foreign tensor."""
        joined = (sum(shapes[name][0] for name in self.targets), *shapes[self.targets[0]][1:])
        offset = (joined[0] + OFFSET, *joined[1:])
        return {"same": joined, "transposed": joined[::-1], "row": (1, *joined), "offset": offset}[self.form]

    def inwards(self, tensor: Tensor, shapes: Shapes) -> Iterator[tuple[str, Tensor]]:
        """The foreign tensor -> heedful's tensors by name."""
        if self.form == "transposed":
            tensor = tensor.mT if tensor.dim() == 2 else tensor
        joined = {"row": tensor[0], "offset": tensor[OFFSET:]}.get(self.form, tensor)
        parts = torch.split(joined, [shapes[name][0] for name in self.targets])
        yield from zip(self.targets, (part.contiguous() for part in parts), strict=True)

    def outwards(self, state: Mapping[str, Tensor]) -> Tensor:
        """Heedful's tensors -> the foreign tensor."""
        joined = torch.cat([state[name] for name in self.targets])
        if self.form == "transposed":
            return joined.t().contiguous() if joined.dim() == 2 else joined
        if self.form == "offset":
            return torch.cat([joined.new_zeros(OFFSET, *joined.shape[1:]), joined])
        return joined.unsqueeze(0) if self.form == "row" else joined


@dataclass(frozen=True)
class WeightLayout:
    """All tensors of a foreign model by name, tied copies, fallbacks, and a pattern of names to ignore."""

    places: Mapping[str, WeightMapping]
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> the tensors that it is a copy of
    spares: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> missing tensors that it replaces
    ignored: str = r"(?!)"

    def names(self, weights: ForeignWeights) -> dict[str, str]:
        """Expected names -> names in the file; refuses a file with missing or unknown tensors."""
        names = {name: name for name in self.places if name in weights.shapes}
        for copy, name in _pairs(self.copies, weights) + _pairs(self.spares, weights):
            names.setdefault(name, copy)
        for name in self.places:
            if name not in names:
                raise FolderError(f"{weights.where} lacks the tensor {name}, which its configuration requires.")
        for name in weights.shapes.keys() - self.places.keys() - self.copies.keys() - self.spares.keys():
            if not re.search(self.ignored, name):
                raise FolderError(f"{weights.where} holds {quote(name)}, a tensor that heedful does not know.")
        return names

    def inwards(self, weights: ForeignWeights, shapes: Shapes) -> dict[str, Tensor]:
        """Foreign weights -> heedful's; all shapes are compared before a tensor is read."""
        names = self.names(weights)
        for name, place in self.places.items():
            has, expected = weights.shapes[names[name]], place.shape(shapes)
            if has != expected:
                raise FolderError(
                    f"{weights.where}: {names[name]} has shape {quote(has)}, but the configuration requires {expected}."
                )
        state: dict[str, Tensor] = {}
        for name, place in self.places.items():
            tensor = weights.read(names[name])
            if not all_finite(tensor):
                raise FolderError(
                    f"{weights.where}: {name} holds numbers that are not finite in float32; it cannot be used."
                )
            state.update(place.inwards(tensor, shapes))
        for copy, name in _pairs(self.copies, weights):
            if names[name] != copy:
                self._check_copy(weights, copy, names[name])
        return state

    def outwards(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Heedful's weights -> foreign weights."""
        return {name: place.outwards(state) for name, place in self.places.items()}

    def _check_copy(self, weights: ForeignWeights, copy: str, name: str) -> None:
        same = weights.shapes[copy] == weights.shapes[name] and torch.equal(weights.read(copy), weights.read(name))
        if not same:
            raise FolderError(
                f"{weights.where}: {copy} differs from {name}, but the configuration ties them; "
                "set tie_word_embeddings to the value that the model was trained with."
            )


def _pairs(copies: Mapping[str, tuple[str, ...]], weights: ForeignWeights) -> list[tuple[str, str]]:
    return [(copy, name) for copy, names in copies.items() if copy in weights.shapes for name in names]


def both(foreign_name: str, *targets: str, form: Literal["same", "transposed"] = "same") -> dict[str, WeightMapping]:
    """The mappings of a weight and its bias."""
    return {
        f"{foreign_name}.{part}": WeightMapping(tuple(f"{name}.{part}" for name in targets), form)
        for part in ("weight", "bias")
    }


def encoder_decoder_blocks(config: ModelConfig, key_bias: bool = True) -> dict[str, WeightMapping]:
    """The blocks of an encoder-decoder under the names that Marian, BART and Whisper share."""
    places: dict[str, WeightMapping] = {}
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for index in range(layers):
            foreign_block, block = f"model.{side}.layers.{index}", f"{side}.{index}"
            places |= _attention(f"{foreign_block}.self_attn", f"{block}.self", key_bias)
            if side == "decoder":
                places |= _attention(f"{foreign_block}.encoder_attn", f"{block}.cross", key_bias)
            places |= both(f"{foreign_block}.fc1", f"{block}.feed.up")
            places |= both(f"{foreign_block}.fc2", f"{block}.feed.down")
            places |= both(f"{foreign_block}.final_layer_norm", f"{block}.feed_residual.norm")
    return places


def _attention(foreign_attention: str, attention: str, key_bias: bool) -> dict[str, WeightMapping]:
    places = both(f"{foreign_attention}_layer_norm", f"{attention}_residual.norm")
    for theirs, ours in {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}.items():
        places |= both(f"{foreign_attention}.{theirs}", f"{attention}.{ours}")
    if not key_bias:
        del places[f"{foreign_attention}.k_proj.bias"]
    return places
