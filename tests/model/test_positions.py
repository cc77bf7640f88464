"""What each scheme promises about order, by identities and by loops."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.positions import POSITIONS, Alibi, Learned, Position, Relative, Rotary, Sinusoidal
from heedful.ops import position_tables
from heedful.ops.position_tables import alibi_slopes

from .samples import small


def sinusoids(length: int, width: int) -> Tensor:
    return torch.from_numpy(position_tables.sinusoids(length, width))


def scheme(name: str, n_layers: int = 1, **changes) -> Position:
    torch.manual_seed(0)
    return POSITIONS[name](small(positions=name, **changes), n_layers).double()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_scheme_of_the_settings_exists():
    assert [*POSITIONS, "syntax"] == list(ModelConfig.model_fields["positions"].annotation.__args__)


@pytest.mark.parametrize("position", [0, 1, 2, 3, 50])
def test_four_wide_sinusoids_are_those_of_the_worked_example(position):
    expected = [math.sin(position), math.cos(position), math.sin(position / 100), math.cos(position / 100)]
    assert sinusoids(51, 4)[position].tolist() == pytest.approx(expected, abs=1e-6)


def test_worked_example_to_two_digits():
    expected = [[0.0, 1.0, 0.0, 1.0], [0.84, 0.54, 0.01, 1.0], [0.91, -0.42, 0.02, 1.0]]
    assert [[round(x, 2) for x in row] for row in sinusoids(3, 4).tolist()] == expected


@pytest.mark.parametrize("width", [4, 16, 512])
def test_sinusoids_are_the_formula(width):
    place, column = np.meshgrid(np.arange(300.0), np.arange(width), indexing="ij")
    angle = place / 10_000 ** ((column - column % 2) / width)
    expected = np.where(column % 2 == 0, np.sin(angle), np.cos(angle))
    np.testing.assert_allclose(sinusoids(300, width).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("width", [4, 64])
@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_step_turns_every_sinusoid_by_the_same_angles_wherever_it_starts(width, step):
    table = sinusoids(200 + step, width).double()
    turn = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        angle = step / 10_000 ** (i / width)
        turn[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        )
    torch.testing.assert_close(table[:200] @ turn.t(), table[step:], atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [4, 16, 512])
def test_all_sinusoids_are_equally_long(width):
    lengths = sinusoids(1000, width).square().sum(1)
    torch.testing.assert_close(lengths, torch.full((1000,), width / 2))


def test_wavelengths_grow_geometrically_from_two_pi_towards_ten_thousand_times_that():
    width = 512
    table = sinusoids(2, width).double()
    wavelengths = 2 * math.pi / torch.atan2(table[1, 0::2], table[1, 1::2])  # from the angle of one step
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-5)
    assert wavelengths[-1].item() == pytest.approx(2 * math.pi * 10_000 ** (510 / 512), rel=1e-4)
    ratios = wavelengths[1:] / wavelengths[:-1]
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10_000 ** (2 / width)), atol=0, rtol=1e-4)


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
@pytest.mark.parametrize("start", [0, 5])
def test_embedded_positions_are_added_from_where_the_cache_ends(name, start):
    position, x = scheme(name), random(2, 7, 16)
    assert isinstance(position, Sinusoidal | Learned)
    torch.testing.assert_close(position.embed(x, start) - x, position.table[start : start + 7].expand(2, -1, -1))


@pytest.mark.parametrize("d_key", [None, 6])
def test_rotary_products_depend_on_the_distance_alone(d_key):
    position = scheme("rotary", d_key=d_key)
    query, key = random(1, 4, 1, d_key or 4), random(1, 4, 1, d_key or 4, seed=1)
    products = [[(position.rotate(query, i) * position.rotate(key, j)).sum(-1) for j in range(12)] for i in range(12)]
    for distance in range(-11, 12):
        same = torch.stack([products[i][i + distance] for i in range(12) if 0 <= i + distance < 12])
        torch.testing.assert_close(same, same[:1].expand_as(same), atol=1e-6, rtol=0)
    assert (products[0][0] - products[0][5]).abs().max() > 0.1


def test_rotary_turns_pairs_by_the_angles_of_the_paper():
    position, x = scheme("rotary", d_key=6), random(2, 4, 9, 6)
    pairs = torch.view_as_complex(x.unflatten(-1, (3, 2)).contiguous())
    rate = 10_000.0 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    spun = pairs * torch.polar(torch.ones(9, 3).double(), torch.outer(torch.arange(9).double(), rate))
    torch.testing.assert_close(position.rotate(x), torch.view_as_real(spun).flatten(-2), atol=1e-6, rtol=0)
    torch.testing.assert_close(position.rotate(x).norm(dim=-1), x.norm(dim=-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["rotary", "sinusoidal", "learned"])
def test_in_pieces_is_the_same_as_at_once(name):
    position = scheme(name)
    apply = position.rotate if name == "rotary" else position.embed
    x = random(2, 4, 10, 4) if name == "rotary" else random(2, 10, 16)
    pieces = [apply(x[..., 0:3, :], 0), apply(x[..., 3:4, :], 3), apply(x[..., 4:10, :], 4)]
    torch.testing.assert_close(torch.cat(pieces, -2), apply(x, 0))


PUBLISHED_SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    12: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
}


@pytest.mark.parametrize("n_heads", PUBLISHED_SLOPES)
def test_alibi_slopes_are_the_published_ones(n_heads):
    assert alibi_slopes(n_heads).tolist() == pytest.approx(PUBLISHED_SLOPES[n_heads])


def test_alibi_by_hand():
    position = scheme("alibi", n_heads=2)
    assert isinstance(position, Alibi)
    distance = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]], dtype=torch.float64)
    expected = torch.stack([-distance / 16, -distance / 256])
    bias = position.bias(random(3, 2, 4, 8), 4)
    torch.testing.assert_close(bias, expected)
    torch.testing.assert_close(position.bias(random(3, 2, 2, 8), 4), expected[:, 2:])  # two tokens in the cache


@pytest.mark.parametrize("window", [1, 2, 16])
@pytest.mark.parametrize("queries", [7, 1, 3])
def test_relative_scores_are_those_of_a_triple_loop(window, queries):
    keys, config = 7, {"relative_window": window, "d_key": 6}
    position = scheme("relative", 2, **config)
    assert isinstance(position, Relative)
    query = random(2, 4, queries, 6)
    for index in range(2):
        layer = position.layer(index)
        table = layer.table.detach().numpy()
        assert table.shape == (2 * window + 1, 6)
        expected = np.zeros((2, 4, queries, keys))
        for b, h, i, j in np.ndindex(2, 4, queries, keys):
            clipped = max(-window, min(window, j - (keys - queries + i)))
            expected[b, h, i, j] = query[b, h, i].numpy() @ table[clipped + window] / math.sqrt(6)
        torch.testing.assert_close(layer.bias(query, keys).detach(), torch.from_numpy(expected))


def test_relative_layers_have_tables_of_their_own():
    position = scheme("relative", 3)
    tables = [position.layer(index).table for index in range(3)]
    assert len({id(table) for table in tables}) == 3
    assert len(list(position.parameters())) == 3


@pytest.mark.parametrize("name", POSITIONS)
def test_a_scheme_acts_only_where_it_says(name):
    position, x, heads = scheme(name), random(2, 5, 16), random(2, 4, 5, 4)
    acts = {
        "embed": not torch.equal(position.embed(x), x),
        "turn": not torch.equal(position.rotate(heads), heads),
        "bias": position.layer(0).bias(heads, 5) is not None,
    }
    places = {"sinusoidal": "embed", "learned": "embed", "rotary": "turn", "alibi": "bias", "relative": "bias"}
    assert [place for place, does in acts.items() if does] == [places[name]]


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "alibi"])
def test_fixed_schemes_are_not_saved_with_the_model(name):
    position = scheme(name)
    assert not list(position.parameters())
    assert not position.state_dict()


def test_rotary_is_exact_far_out():
    """Angles are computed in double precision: at position 60,000 a single-precision angle is off by a thousandth."""
    position = Rotary(small(positions="rotary", max_length=60_001, d_key=64), 1)
    rate = 10_000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    expected = torch.stack(((60_000 * rate).cos(), (60_000 * rate).sin()), dim=-1)
    torch.testing.assert_close(position.rotations[60_000].double(), expected, atol=1e-6, rtol=0)
