"""How the model knows where a token stands.

A scheme acts in at most three places, so it has three methods that do nothing unless it needs them: on the embeddings,
on queries and keys, and on the scores. Callers call all three and never ask which scheme it is.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.ops import position_tables


class Position(nn.Module):
    """No positions at all: what every scheme starts from."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__()

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T, D) -> (B, T, D); `start` tokens are already in the cache, or (B,) so many of each row."""
        return x

    def rotate(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, H, T, d) -> (B, H, T, d): queries or keys."""
        return x

    def bias(self, query: Tensor, keys: int, distance: Tensor | None = None) -> Tensor | None:
        """(B, H, …, T, d) and S -> what is added to the scaled scores, broadcast to (B, H, …, T, S).

        `distance` (T, S) says how far each key stands behind each query, unless the last key stands at the last query.
        """
        return None

    def layer(self, index: int) -> "Position":
        """The scheme as layer `index` sees it."""
        return self


def tabulated(make: Callable[..., position_tables.Table], *sizes: int) -> Tensor:
    """A table that follows from the configuration; a model without memory, made for its shapes, has none."""
    return torch.empty(0) if torch.get_default_device().type == "meta" else torch.from_numpy(make(*sizes))


def _places(table: Tensor, start: int | Tensor, length: int) -> Tensor:
    """(max_length, …) -> (T, …) from one place on, or (B, T, …) from another one in each row."""
    if isinstance(start, int):
        return table[start : start + length]
    return table[start.unsqueeze(1) + torch.arange(length, device=start.device)]


class Sinusoidal(Position):
    """Sines and cosines of geometrically growing wavelengths, added to the embeddings (section 3.5 of the paper)."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.table: Tensor
        table = tabulated(position_tables.sinusoids, config.max_length, config.d_model)
        self.register_buffer("table", table, persistent=False)

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        return x + _places(self.table, start, x.size(1)).to(x.dtype)


class Learned(Position):
    """A vector for each position, learned like the embedding of a token (row E of Table 3)."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.table = nn.Parameter(torch.empty(config.max_length, config.d_model))
        nn.init.normal_(self.table, std=0.02)

    def embed(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        return x + _places(self.table, start, x.size(1))


class Rotary(Position):
    """Turn queries and keys by an angle that grows with position (Su et al., 2021).

    The product of two turned vectors depends only on the distance between them.
    """

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.turns: Tensor  # (max_length, d / 2, 2): cosine and sine of each angle
        table = tabulated(position_tables.rotary_table, config.max_length, config.key_width)
        self.register_buffer("turns", table, persistent=False)

    def rotate(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """Two neighbouring numbers are a complex one, which a product turns."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # there are no complex numbers of half precision
        points = torch.view_as_complex(wide.reshape(*x.shape[:-1], -1, 2))  # (B, H, T, d / 2)
        turns = torch.view_as_complex(_places(self.turns, start, x.size(2)).to(wide.dtype))  # (T, d / 2)
        turns = turns if turns.dim() == 2 else turns.unsqueeze(1)  # (B, 1, T, d / 2)
        return torch.view_as_real(points * turns).flatten(-2).to(x.dtype)


class Alibi(Position):
    """Lower each score in proportion to the distance, at another slope in each head (Press et al., 2022)."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, n_layers)
        self.slopes: Tensor
        self.register_buffer("slopes", tabulated(position_tables.alibi_slopes, config.n_heads), persistent=False)

    def bias(self, query: Tensor, keys: int, distance: Tensor | None = None) -> Tensor | None:
        slopes = self.slopes.to(query.dtype).view(-1, *[1] * (query.dim() - 2))  # (H, …, 1, 1)
        return -slopes * (_distance(query, keys) if distance is None else distance).abs()  # (H, …, T, S)


class Relative(Position):
    """A learned vector for each clipped distance, compared with the query (Shaw et al., 2018); one table a layer."""

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
        """Every query is compared with the table once; the distances only pick from the result."""
        by_distance = query @ self.table.t() / math.sqrt(query.size(-1))  # (B, H, T, 2w + 1)
        distance = _distance(query, keys) if distance is None else distance
        index = distance.clamp(-self.window, self.window) + self.window  # (T, S)
        return by_distance.gather(-1, index.expand(*query.shape[:-2], -1, -1))


def _distance(query: Tensor, keys: int) -> Tensor:
    """-> (T, S): the same for queries of which the last stands at the last key."""
    return distances(torch.arange(keys - query.size(-2), keys, device=query.device), keys)


def distances(here: Tensor, keys: int) -> Tensor:
    """(T,) places of queries -> (T, S): how far each key stands behind (+) or before (-) each query."""
    return torch.arange(keys, device=here.device)[None, :] - here[:, None]


POSITIONS: dict[str, type[Position]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
    "relative": Relative,
}
