"""The sizes that the paper prints (Table 3), on models without storage."""

from functools import cache

import pytest
import torch

from heedful.config import ModelConfig
from heedful.model.transformer import build_model

PRINTED = {  # millions
    "base": ({}, 65),
    "B, d_k 16": ({"d_key": 16}, 58),
    "B, d_k 32": ({"d_key": 32}, 60),
    "C, N 2": ({"encoder_layers": 2, "decoder_layers": 2}, 36),
    "C, N 4": ({"encoder_layers": 4, "decoder_layers": 4}, 50),
    "C, N 8": ({"encoder_layers": 8, "decoder_layers": 8}, 80),
    "C, d_model 256": ({"d_model": 256}, 28),
    "C, d_model 1024": ({"d_model": 1024}, 168),
    "C, d_ff 1024": ({"d_ff": 1024}, 53),
    "C, d_ff 4096": ({"d_ff": 4096}, 90),
}
BIG = {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}


@cache
def count(**changes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_model(ModelConfig(**changes)).parameters())


def millions(**changes) -> int:
    return round(count(**changes) / 1e6)


@pytest.mark.parametrize("vocab_size", [40_932, 41_000, 41_160])
@pytest.mark.parametrize("row", PRINTED)
def test_rows_of_table_3_have_the_printed_size(row, vocab_size):
    changes, printed = PRINTED[row]
    assert millions(**changes, vocab_size=vocab_size) == printed


@pytest.mark.parametrize("vocab_size", [40_931, 41_161])
def test_outside_that_range_of_vocabularies_some_row_is_off(vocab_size):
    assert any(millions(**changes, vocab_size=vocab_size) != printed for changes, printed in PRINTED.values())


@pytest.mark.parametrize(("vocab_size", "big"), [(35_295, 212), (35_296, 213), (36_272, 213), (36_273, 214)])
def test_the_big_model_has_the_printed_size_at_a_smaller_vocabulary(vocab_size, big):
    """So no single vocabulary gives the paper's 65 million for base and 213 million for big."""
    assert millions(**BIG, vocab_size=vocab_size) == big
    assert millions(vocab_size=vocab_size) < 65


@pytest.mark.parametrize("n_heads", [1, 4, 16, 32])
def test_the_number_of_heads_leaves_the_size_alone(n_heads):
    assert count(n_heads=n_heads) == count()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_dropout_leaves_the_size_alone(dropout):
    assert count(dropout=dropout) == count()


def test_learned_positions_add_their_table():
    assert count(positions="learned", max_length=128) - count() == 2 * 128 * 512


def test_sizes_and_differences_are_those_of_arithmetic():
    attention, norm = 4 * (512 * 512 + 512), 2 * 512
    feed = 512 * 2048 + 2048 + 2048 * 512 + 512
    pair = (attention + feed + 2 * norm) + (2 * attention + feed + 3 * norm)
    assert pair == 7_356_416
    assert count() == 37_000 * 512 + 6 * pair == 63_082_496
    assert count(encoder_layers=7, decoder_layers=7) - count() == pair
    assert count(d_ff=4096) - count() == 12 * (2 * 512 * 2048 + 2048) == 25_190_400
    assert count(d_key=16) - count() == -18 * 2 * 8 * (64 - 16) * (512 + 1) == -7_091_712
    assert count(pre_norm=True) - count() == 2 * norm
    assert count(tie="target") - count() == 37_000 * 512
    assert count(tie="none") - count() == 2 * 37_000 * 512
    assert count(activation="swiglu") - count() == 12 * (512 * 2048 + 2048)
    assert count() - count(bias=False) == 18 * 4 * 512 + 12 * (2048 + 512)
    assert count(output_bias=True) - count() == 37_000
