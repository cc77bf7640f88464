"""The recorded weights are transformers' attentions, for BERT, GPT-2 and Marian opened from their folders."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from heedful.inference.record import record
from heedful.inside import explain
from heedful.interop import open_folder

pytest.importorskip("transformers")
from tests.interop import makers


def theirs(model, **inputs):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model.eval()(**inputs, output_attentions=True)


def check(trace, name, attentions, rows=None):
    """Layer by layer; `rows` is True where a query is no padding."""
    assert len(attentions) > 1
    for layer, expected in enumerate(attentions):
        both = [item.transpose(1, 2) for item in (trace[name.format(layer)] + 0, expected)]
        assert_close(*(value if rows is None else value[rows] for value in both), atol=2e-6, rtol=2e-5)


def test_gpt2(tmp_path):
    model = makers.gpt2(tmp_path)
    ids = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    folder = open_folder(tmp_path)
    with torch.no_grad(), record(folder) as trace:
        folder.model(ids)
    check(trace, "decoder.{}.self.weights", theirs(model, input_ids=ids).attentions)


def test_bert(tmp_path):
    model = makers.bert(tmp_path)
    folder = open_folder(tmp_path)
    pad = folder.model.config.pad_id
    ids = makers.padded([9, 5, 7], 60, pad)
    real = ids != pad
    with torch.no_grad(), record(folder) as trace:
        folder.model(ids)
    result = theirs(model, input_ids=ids, attention_mask=real.long())
    check(trace, "encoder.{}.self.weights", result.attentions, real)


def test_marian(tmp_path):
    model = makers.marian(tmp_path, decoder_layers=2)
    folder = open_folder(tmp_path)
    pad = folder.model.config.pad_id
    source = makers.padded([9, 5, 7], 60, pad)
    target = makers.padded([6, 6, 6], 60, pad, seed=3)
    real = source != pad
    with torch.no_grad(), record(folder) as trace:
        folder.model(source, target)
    result = theirs(model, input_ids=source, attention_mask=real.long(), decoder_input_ids=target)
    check(trace, "encoder.{}.self.weights", result.encoder_attentions, real)
    check(trace, "decoder.{}.self.weights", result.decoder_attentions)
    check(trace, "decoder.{}.cross.weights", result.cross_attentions)


def test_their_pieces_are_readable_words(tmp_path):
    """Every vocabulary marks words in its own way; a reader sees the same words."""
    for name, make in (("bert", makers.bert), ("gpt2", makers.gpt2), ("marian", makers.marian)):
        path = tmp_path / name
        path.mkdir()
        make(path)
        result = explain(open_folder(path), "a man plays in the garden.")
        side = result.run.source or result.run.target
        words = [word for word in side.words if not word.startswith(("[", "<"))]
        assert words[:5] == ["a", "man", "plays", "in", "the"], name
        assert result.data()["attentions"]
        assert "".join(side.pieces[1:3]).isprintable()
