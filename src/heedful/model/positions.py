"""Position schemes: sinusoidal, learned, rotary, ALiBi and relative.

A scheme has three hooks, each the identity by default: on the embeddings, on queries and keys, and on the scores.
Callers call all three and do not know which scheme it is.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.ops import position_tables


class Position(nn.Module):
    """No position information: the default hooks of every scheme."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__()

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T, D) -> (B, T, D); `start` is the position of the first token, or (B,) its position in each row."""
        return x

    def rotate(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, H, T, d) -> (B, H, T, d), for queries and for keys."""
        return x

    def bias(self, query: Tensor, keys: int, distance: Tensor | None = None) -> Tensor | None:
        """(B, H, …, T, d) and S -> the bias added to the scaled scores, broadcast to (B, H, …, T, S).

        `distance` (T, S) is key position minus query position; by default the last query is at the last key.
        """
        return None

    def layer(self, index: int) -> "Position":
        """The scheme of layer `index`; all layers share one unless overridden."""
        return self

    def of_batch(self, tree: Tensor | None) -> "Position":
        """The scheme for one batch; `tree` (B, S, 2) holds the dependency trees of its sentences."""
        return self


def table_buffer(compute: Callable[..., position_tables.Table], *sizes: int) -> Tensor:
    """A constant table as a tensor; empty on the meta device, where a model has shapes only."""
    return torch.empty(0) if torch.get_default_device().type == "meta" else torch.from_numpy(compute(*sizes))


def _lookup(table: Tensor, start: int | Tensor, length: int) -> Tensor:
    """(max_length, …) -> (T, …) from position `start` on, or (B, T, …) if the rows have different ones."""
    if isinstance(start, int):
        return table[start : start + length]
    return table[start.unsqueeze(1) + torch.arange(length, device=start.device)]


class Sinusoidal(Position):
    """Sines and cosines of geometrically growing wavelengths, added to the embeddings (section 3.5 of the paper)."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.table: Tensor
        table = table_buffer(position_tables.sinusoids, config.max_length, config.d_model)
        self.register_buffer("table", table, persistent=False)

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        return x + _lookup(self.table, start, x.size(1)).to(x.dtype)


class Learned(Position):
    """A learned embedding for each position (row E of Table 3)."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.table = nn.Parameter(torch.empty(config.max_length, config.d_model))
        nn.init.normal_(self.table, std=0.02)

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        return x + _lookup(self.table, start, x.size(1))


class Rotary(Position):
    """Rotary position embedding (Su et al., 2021): rotate pairs of query and key dimensions by angles ∝ position.

    The dot product of two rotated vectors depends only on their distance.
    """

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.rotations: Tensor  # (max_length, d / 2, 2): cosine and sine of each angle
        table = table_buffer(position_tables.rotary_table, config.max_length, config.key_width)
        self.register_buffer("rotations", table, persistent=False)

    def rotate(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """Two adjacent dimensions are a complex number, and a complex product rotates it."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # torch has no complex bf16
        points = torch.view_as_complex(wide.reshape(*x.shape[:-1], -1, 2))  # (B, H, T, d / 2)
        rotations = torch.view_as_complex(_lookup(self.rotations, start, x.size(2)).to(wide.dtype))  # (T, d / 2)
        rotations = rotations if rotations.dim() == 2 else rotations.unsqueeze(1)  # (B, 1, T, d / 2)
        return torch.view_as_real(points * rotations).flatten(-2).to(x.dtype)


class Alibi(Position):
    """ALiBi (Press et al., 2022): a penalty on scores proportional to distance, with a slope per head."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.slopes: Tensor
        self.register_buffer("slopes", table_buffer(position_tables.alibi_slopes, config.n_heads), persistent=False)

    def bias(self, query: Tensor, keys: int, distance: Tensor | None = None) -> Tensor | None:
        slopes = self.slopes.to(query.dtype).view(-1, *[1] * (query.dim() - 2))  # (H, …, 1, 1)
        return -slopes * (_distance(query, keys) if distance is None else distance).abs()  # (H, …, T, S)


class Relative(Position):
    """Relative position embeddings (Shaw et al., 2018): scores + q · a(clipped distance); one table per layer."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        for index in range(n_layers):
            self.add_module(str(index), _RelativeLayer(config))

    def layer(self, index: int) -> Position:
        layer = self.get_submodule(str(index))
        assert isinstance(layer, Position)
        return layer


class _RelativeLayer(Position):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, 1)
        self.window = config.relative_window
        self.table = nn.Parameter(torch.empty(2 * self.window + 1, config.key_width))
        nn.init.normal_(self.table, std=0.02)

    def bias(self, query: Tensor, keys: int, distance: Tensor | None = None) -> Tensor | None:
        """One product of the queries with the table; the distances index into the result."""
        by_distance = query @ self.table.t() / math.sqrt(query.size(-1))  # (B, H, T, 2w + 1)
        distance = _distance(query, keys) if distance is None else distance
        index = distance.clamp(-self.window, self.window) + self.window  # (T, S)
        return by_distance.gather(-1, index.expand(*query.shape[:-2], -1, -1))


def _distance(query: Tensor, keys: int) -> Tensor:
    """-> (T, S): `distances` if the last query is at the last key."""
    return distances(torch.arange(keys - query.size(-2), keys, device=query.device), keys)


def distances(queries: Tensor, keys: int) -> Tensor:
    """(T,) positions of queries -> (T, S): key position minus query position."""
    return torch.arange(keys, device=queries.device)[None, :] - queries[:, None]


POSITIONS: dict[str, type[Position]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
    "relative": Relative,
}
