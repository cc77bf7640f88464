"""Structural positions (after Wang et al., 2019): where a token stands in the dependency tree of its sentence.

The absolute position of a word is its depth, the number of arcs from the root. The relative position of word i to word
j is depth_i - depth_j if one is an ancestor of the other, else ±(depth_i + depth_j) with the sign of their order, plus
if i comes later; docs/systems.md says how much of this is verified. All subwords of a word stand where it stands. A
tree is (B, S, 2): for each token the first token of its word, and the first token of the head of its word, which is the
word itself at the root.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.positions import Position, table_buffer
from heedful.ops import position_tables

TreeReader = Callable[[Tensor], Tensor]  # (B, S) source ids -> (B, S, 2) their trees


def structural_positions(tree: Tensor) -> tuple[Tensor, Tensor]:
    """(B, S, 2) -> (B, S) and (B, S, S): absolute and relative positions."""
    word, head = tree.unbind(2)
    ancestors = F.one_hot(word, tree.size(1)).bool()  # (B, S, S): the words on the path to the root, itself included
    depth, current = torch.zeros_like(word), word
    for _ in range(tree.size(1)):  # a damaged tree may have a cycle
        above = head.gather(1, current)
        depth = depth + (above != current)
        if torch.equal(above, current):
            break
        ancestors, current = ancestors | F.one_hot(above, tree.size(1)).bool(), above
    below = ancestors.gather(2, word.unsqueeze(1).expand_as(ancestors))  # (B, S, S): j's word is on the path of i
    places = torch.arange(tree.size(1), device=tree.device)
    order = (places.unsqueeze(1) - places).sign()
    difference, total = depth.unsqueeze(2) - depth.unsqueeze(1), depth.unsqueeze(2) + depth.unsqueeze(1)
    return depth, torch.where(below | below.transpose(1, 2), difference, order * total)


class Syntax(Position):
    """Absolute: x + tanh(U p(t) + V p(depth)) with sinusoids p. Relative: scores + q · a(clipped relative position).

    Without a tree, the position in the sequence alone is added.
    """

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.table: Tensor
        table = table_buffer(position_tables.sinusoids, config.max_length, config.d_model)
        self.register_buffer("table", table, persistent=False)
        self.sequence = nn.Linear(config.d_model, config.d_model, bias=False)
        self.structure = nn.Linear(config.d_model, config.d_model, bias=False)
        self.window = config.relative_window
        for index in range(n_layers):
            weights = nn.Parameter(torch.empty(2 * self.window + 1, config.key_width))
            self.register_parameter(f"relative_{index}", weights)
            nn.init.normal_(weights, std=0.02)

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        assert isinstance(start, int)  # an encoder has no cache
        return x + torch.tanh(self.sequence(self.table[start : start + x.size(1)].to(x.dtype)))

    def of_batch(self, tree: Tensor | None) -> Position:
        return self if tree is None else _SyntaxOfBatch(self, *structural_positions(tree))


class _SyntaxOfBatch(Position):
    """The scheme with the trees of one batch."""

    def __init__(self, scheme: Syntax, depth: Tensor, relative: Tensor, index: int = 0) -> None:
        nn.Module.__init__(self)
        self.scheme, self.depth, self.relative, self.index = scheme, depth, relative, index

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        table = self.scheme.table.to(x.dtype)
        places = self.scheme.sequence(table[: x.size(1)]) + self.scheme.structure(table[self.depth])
        return x + torch.tanh(places)

    def bias(self, query: Tensor, keys: int, distance: Tensor | None = None) -> Tensor | None:
        """One product of the queries with the table; the relative positions index into the result."""
        table, window = self.scheme.get_parameter(f"relative_{self.index}"), self.scheme.window
        by_position = query @ table.t() / math.sqrt(query.size(-1))  # (B, H, S, 2w + 1)
        index = self.relative.clamp(-window, window) + window
        return by_position.gather(-1, index.unsqueeze(1).expand(*query.shape[:3], -1))

    def layer(self, index: int) -> Position:
        return _SyntaxOfBatch(self.scheme, self.depth, self.relative, index)
