"""Padded tensors against a loop, and what importing them costs."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.batch import Batch, collate
from heedful.data.pairs import Pairs
from heedful.text import Specials

IDS = st.lists(st.integers(4, 70_000), max_size=8)
SOURCE, TARGET = Specials(pad=0, bos=2, eos=3), Specials(pad=9, bos=9, eos=1)


@settings(deadline=None)
@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=9), st.data())
def test_collate_equals_a_loop(rows: list[tuple[list[int], list[int]]], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
    batch = collate(Pairs.of(rows), np.array(indices), SOURCE, TARGET)
    chosen = [rows[i] for i in indices]
    sources = [[*source, 3] for source, _ in chosen]
    targets = [[9, *target, 1] for _, target in chosen]
    assert batch.source.tolist() == [row + [0] * (max(map(len, sources)) - len(row)) for row in sources]
    assert batch.target.tolist() == [row + [9] * (max(map(len, targets)) - len(row)) for row in targets]
    assert batch.source_lengths.tolist() == [len(row) for row in sources]
    assert batch.target_lengths.tolist() == [len(row) - 1 for row in targets]
    assert batch.tokens == sum(len(target) + 1 for _, target in chosen)
    assert batch.source.dtype == batch.target.dtype == batch.target_lengths.dtype == torch.int64


def test_decoder_input_and_labels_are_shifted_by_one() -> None:
    batch = collate(Pairs.of([([5, 6], [7, 8]), ([5], [7])]), [0, 1], SOURCE)
    assert batch.decoder_input.tolist() == [[2, 7, 8], [2, 7, 3]]
    assert batch.labels.tolist() == [[7, 8, 3], [7, 3, 0]]
    assert len(batch) == 2


def test_an_empty_piece_is_an_empty_batch() -> None:
    batch = collate(Pairs.of([([5], [7])]), [], SOURCE)
    assert (len(batch), batch.tokens) == (0, 0)
    assert batch.labels.shape == (0, 1)


def test_to_moves_every_tensor() -> None:
    moved = collate(Pairs.of([([5], [7])]), [0], SOURCE).to("meta")
    assert isinstance(moved, Batch) and moved.tokens == 2
    assert {t.device.type for t in (moved.source, moved.target, moved.source_lengths, moved.target_lengths)} == {"meta"}


def test_pairs_know_their_lengths_and_their_end() -> None:
    pairs = Pairs.of([([5, 6], []), ([], [7])])
    assert len(pairs) == 2
    assert pairs.sources.lengths.tolist() == [2, 0] and pairs.targets.lengths.tolist() == [0, 1]
    assert pairs.sources[0].tolist() == [5, 6] and pairs.targets[-1].tolist() == [7]
    with pytest.raises(IndexError):
        pairs.sources[2]


@pytest.mark.parametrize("module", ["heedful.text", "heedful.data"])
def test_reading_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
